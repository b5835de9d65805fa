//! GTP-U echo messages (3GPP TS 29.281, 7.2.1 and 7.2.2).

/// Version 1, protocol type GTP (5.1).
const VERSION: u8 = 0x30;
const VERSION_MASK: u8 = 0xf0;
/// The header has a sequence number.
const SEQUENCE: u8 = 0x02;
const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;

/// An echo request: a header with a sequence number and TEID 0.
pub fn request(sequence: u16) -> [u8; 12] {
    let [s0, s1] = sequence.to_be_bytes();
    [VERSION | SEQUENCE, REQUEST, 0, 4, 0, 0, 0, 0, s0, s1, 0, 0]
}

/// The sequence number of an echo response; `None` if the datagram is something else.
pub fn response(datagram: &[u8]) -> Option<u16> {
    let (header, _) = datagram.split_first_chunk::<12>()?;
    let [flags, kind, .., s0, s1, _n_pdu, _next] = *header;
    let is_response = flags & VERSION_MASK == VERSION && flags & SEQUENCE != 0 && kind == RESPONSE;
    is_response.then(|| u16::from_be_bytes([s0, s1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_response_with_a_sequence_number_counts() {
        let mut answer = request(0x1234);
        assert_eq!(response(&answer), None);
        answer[1] = RESPONSE;
        assert_eq!(response(&answer), Some(0x1234));
        assert_eq!(response(&answer[..11]), None);
        answer[0] = VERSION;
        assert_eq!(response(&answer), None);
        answer[0] = 0x52;
        assert_eq!(response(&answer), None);
    }
}
