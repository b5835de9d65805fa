//! What `gthctl trace` is told to trace.

use std::str::FromStr;

use crate::base::error::{Error, ExitCode, Result};
use crate::gtp::Plane;

/// A data plane, or the XDP program of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceTarget {
    Plane(Plane),
    /// The XDP program at this network device.
    Xdp(String),
}

/// The longest name of a network device (IFNAMSIZ - 1, include/uapi/linux/if.h).
const MAX_DEVICE: usize = 15;

impl FromStr for TraceTarget {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(device) = text.strip_prefix("xdp:") {
            if device.is_empty() || device.len() > MAX_DEVICE || device.contains(['/', '\0']) {
                let what = "expected a network device after xdp:, as in xdp:eth0";
                return Err(Error::new(ExitCode::Usage, what));
            }
            return Ok(Self::Xdp(device.to_owned()));
        }
        let what = "expected gtp5g, gtp, udp: and a port from 1 to 65535, as in udp:2152, or xdp: \
                    and a network device, as in xdp:eth0";
        let plane = text.parse().map_err(|()| Error::new(ExitCode::Usage, what))?;
        Ok(Self::Plane(plane))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gtp::Module;

    #[test]
    fn planes_and_devices() {
        let of = |text: &str| text.parse::<TraceTarget>().ok();
        assert_eq!(of("gtp"), Some(TraceTarget::Plane(Plane::Module(Module::Gtp))));
        assert_eq!(of("udp:2152"), Some(TraceTarget::Plane(Plane::Port(2152))));
        assert_eq!(of("xdp:eth0.7"), Some(TraceTarget::Xdp("eth0.7".into())));
        for text in ["xdp:", "xdp", "xdp:a/b", "xdp:0123456789abcdef", "udp:0", "upf"] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
