//! The part of GTP-U (3GPP TS 29.281) that the simulated gNB speaks.

use std::fmt;

/// The UDP port of GTP-U.
pub const PORT: u16 = 2152;
/// Length of the header this side sends: no optional fields.
pub const HEADER: usize = 8;

const ECHO_REQUEST: u8 = 1;
const ECHO_RESPONSE: u8 = 2;
const G_PDU: u8 = 255;

/// Version 1, protocol type GTP.
const FLAGS: u8 = 0x30;
const FLAG_EXTENSION: u8 = 0x04;
const FLAG_SEQUENCE: u8 = 0x02;
const FLAGS_OPTIONAL: u8 = 0x07;

/// A received message.
#[derive(Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A user packet for the tunnel `teid`.
    Packet { teid: u32, payload: &'a [u8] },
    /// Is this end alive? Answer with [`echo_response`].
    EchoRequest { sequence: u16 },
    /// Any other type; not for this simulator.
    Other(u8),
}

/// Why a datagram is not GTP-U.
#[derive(Debug, PartialEq, Eq)]
pub enum Malformed {
    Short(usize),
    Flags(u8),
    Length { header: usize, datagram: usize },
    Extension,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short(len) => write!(f, "{len} bytes are too few for a GTP-U header"),
            Self::Flags(flags) => write!(f, "flags {flags:#04x} are not GTP version 1"),
            Self::Length { header, datagram } => {
                write!(f, "the header says {header} bytes, the datagram has {datagram}")
            }
            Self::Extension => f.write_str("the extension headers do not end"),
        }
    }
}

/// The header of a G-PDU of `payload` bytes for the tunnel `teid`.
pub fn header(teid: u32, payload: u16) -> [u8; HEADER] {
    let [l0, l1] = payload.to_be_bytes();
    let [t0, t1, t2, t3] = teid.to_be_bytes();
    [FLAGS, G_PDU, l0, l1, t0, t1, t2, t3]
}

/// The answer to an echo request: its sequence number and a recovery element of 0.
pub fn echo_response(sequence: u16) -> [u8; 14] {
    let [s0, s1] = sequence.to_be_bytes();
    [FLAGS | FLAG_SEQUENCE, ECHO_RESPONSE, 0, 6, 0, 0, 0, 0, s0, s1, 0, 0, 14, 0]
}

/// Reads one datagram.
pub fn decode(datagram: &[u8]) -> Result<Message<'_>, Malformed> {
    let Some((header, rest)) = datagram.split_first_chunk::<HEADER>() else {
        return Err(Malformed::Short(datagram.len()));
    };
    let [flags, kind, l0, l1, t0, t1, t2, t3] = *header;
    if flags & 0xf0 != FLAGS {
        return Err(Malformed::Flags(flags));
    }
    let length = usize::from(u16::from_be_bytes([l0, l1]));
    let mut body =
        rest.get(..length).ok_or(Malformed::Length { header: length, datagram: rest.len() })?;
    let mut sequence = 0;
    if flags & FLAGS_OPTIONAL != 0 {
        // One flag brings all three fields.
        let (&[s0, s1, _n_pdu, next], after) =
            body.split_first_chunk::<4>().ok_or(Malformed::Short(datagram.len()))?;
        sequence = u16::from_be_bytes([s0, s1]);
        body = if flags & FLAG_EXTENSION != 0 { skip_extensions(next, after)? } else { after };
    }
    Ok(match kind {
        G_PDU => Message::Packet { teid: u32::from_be_bytes([t0, t1, t2, t3]), payload: body },
        ECHO_REQUEST => Message::EchoRequest { sequence },
        other => Message::Other(other),
    })
}

/// What follows a chain of extension headers whose first one has the type `next`.
/// Each begins with its length in words of four bytes and ends with the next one's type.
fn skip_extensions(mut next: u8, mut body: &[u8]) -> Result<&[u8], Malformed> {
    while next != 0 {
        let words = usize::from(*body.first().ok_or(Malformed::Extension)?);
        if words == 0 || body.len() < words * 4 {
            return Err(Malformed::Extension);
        }
        let (extension, after) = body.split_at(words * 4);
        next = extension[words * 4 - 1];
        body = after;
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_survives_both_ways() {
        let mut datagram = header(0x0102_0304, 3).to_vec();
        assert_eq!(datagram, [0x30, 255, 0, 3, 1, 2, 3, 4]);
        datagram.extend(b"abc");
        assert_eq!(decode(&datagram), Ok(Message::Packet { teid: 0x0102_0304, payload: b"abc" }));
    }

    #[test]
    fn bytes_after_the_length_are_padding() {
        let mut datagram = header(7, 2).to_vec();
        datagram.extend(b"abcd");
        assert_eq!(decode(&datagram), Ok(Message::Packet { teid: 7, payload: b"ab" }));
    }

    #[test]
    fn optional_fields_and_extensions_are_skipped() {
        // A PDU session container (0x85) of one word, as a 5G UPF sends it.
        let datagram = [0x34, 255, 0, 10, 0, 0, 0, 9, 0, 0, 0, 0x85, 1, 0x10, 1, 0, b'h', b'i'];
        assert_eq!(decode(&datagram), Ok(Message::Packet { teid: 9, payload: b"hi" }));
    }

    #[test]
    fn an_echo_request_is_answered_with_its_sequence() {
        let request = [0x32, 1, 0, 4, 0, 0, 0, 0, 0x12, 0x34, 0, 0];
        assert_eq!(decode(&request), Ok(Message::EchoRequest { sequence: 0x1234 }));
        let answer = echo_response(0x1234);
        assert_eq!(decode(&answer), Ok(Message::Other(ECHO_RESPONSE)));
        assert_eq!(answer[8..10], [0x12, 0x34]);
    }

    #[test]
    fn malformed_datagrams_are_named() {
        assert_eq!(decode(&[0x30, 255, 0]), Err(Malformed::Short(3)));
        // Version 0, and GTP' (protocol type 0).
        assert_eq!(decode(&[0x10, 255, 0, 0, 0, 0, 0, 1]), Err(Malformed::Flags(0x10)));
        assert_eq!(decode(&[0x20, 255, 0, 0, 0, 0, 0, 1]), Err(Malformed::Flags(0x20)));
        assert_eq!(
            decode(&[0x30, 255, 0, 2, 0, 0, 0, 1, 9]),
            Err(Malformed::Length { header: 2, datagram: 1 })
        );
        // Optional fields announced, but not there.
        assert_eq!(decode(&[0x32, 255, 0, 0, 0, 0, 0, 1]), Err(Malformed::Short(8)));
        // An extension of length 0 would never end; one of two words is cut off.
        for extension in [0, 2] {
            let datagram = [0x34, 255, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0x85, extension, 0, 0, 0];
            assert_eq!(decode(&datagram), Err(Malformed::Extension));
        }
    }
}
