//! The queue of an IRQ, by its name.
//!
//! Each driver chooses the names of its IRQs (`request_irq()`). Many drivers include the queue.

use std::fmt;

use serde::{Serialize, Serializer};

/// A queue of a NIC, or a pair of queues with one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    pub direction: Direction,
    /// From 0.
    pub number: u32,
}

/// What goes through a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What the NIC received.
    Rx,
    /// What the NIC sends.
    Tx,
    /// Both: the two queues share the IRQ.
    RxTx,
}

impl fmt::Display for Queue {
    /// `rx0`, `tx0`, or `rxtx0` for both.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Direction::Rx => "rx",
            Direction::Tx => "tx",
            Direction::RxTx => "rxtx",
        };
        write!(f, "{direction}{}", self.number)
    }
}

impl Serialize for Queue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Queue {
    /// The queue in a name such as `virtio0-input.0`, `eth0-TxRx-3`, `eth0-rx-1` or
    /// `mlx5_comp2@pci:0000:08:00.0`. `None` when the IRQ is not a queue's, or the driver does
    /// not name the queue.
    pub fn of(name: &str) -> Option<Self> {
        let name = name.split_once('@').map_or(name, |(name, _address)| name);
        let words = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = name[words.len()..].parse().ok()?;
        let words = words.to_ascii_lowercase();
        let mut words =
            words.rsplit(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
        let direction = match (words.next()?, words.next()) {
            // ena: Tx-Rx-0.
            ("rx", Some("tx")) => Direction::RxTx,
            ("rx" | "input", _) => Direction::Rx,
            ("tx" | "output", _) => Direction::Tx,
            // mlx5 calls its channels comp; bnx2x and qede call their fast path fp.
            ("txrx" | "rxtx" | "comp" | "fp", _) => Direction::RxTx,
            _ => return None,
        };
        Some(Self { direction, number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_many_drivers() {
        let rx = |number| Some(Queue { direction: Direction::Rx, number });
        let tx = |number| Some(Queue { direction: Direction::Tx, number });
        let both = |number| Some(Queue { direction: Direction::RxTx, number });
        for (name, queue) in [
            ("virtio0-input.0", rx(0)),
            ("virtio12-output.3", tx(3)),
            ("virtio0-config", None),
            ("virtio4-input", None),
            ("enp7s0f1-TxRx-63", both(63)),
            ("i40e-eth0-TxRx-3", both(3)),
            ("i40e-0000:3d:00.0:misc", None),
            ("hns3-0000:7d:00.0-TxRx-2", both(2)),
            ("eth0-rx-1", rx(1)),
            ("eth0-tx-1", tx(1)),
            ("eth0:rx-2", rx(2)),
            ("eth0-Rx4", rx(4)),
            ("ens5-Tx-Rx-6", both(6)),
            ("ens192-rxtx-5", both(5)),
            ("eth0-txrx-1", both(1)),
            ("eth0-fp-7", both(7)),
            ("mlx5_comp11@pci:0000:08:00.0", both(11)),
            ("mlx5_async0@pci:0000:08:00.0", None),
            ("gve-ntfy-blk0@pci:0000:00:04.0", None),
            ("eth0", None),
            ("rx-99999999999", None),
            ("0", None),
            ("", None),
        ] {
            assert_eq!(Queue::of(name), queue, "{name}");
        }
    }
}
