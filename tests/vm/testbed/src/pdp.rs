//! PDP contexts of the kernel's `gtp` driver, over generic netlink
//! (include/uapi/linux/gtp.h).

use std::net::Ipv4Addr;

use anyhow::{Context, Result, anyhow};
use neli::consts::genl::{Cmd, NlAttrType};
use neli::consts::nl::{GenlId, NlmF};
use neli::consts::socket::NlFamily;
use neli::genl::{AttrTypeBuilder, Genlmsghdr, GenlmsghdrBuilder, Nlattr, NlattrBuilder};
use neli::neli_enum;
use neli::nl::NlPayload;
use neli::router::synchronous::NlRouter;
use neli::types::{Buffer, GenlBuffer};
use neli::utils::Groups;
use nix::net::if_::if_nametoindex;

#[neli_enum(serialized_type = "u8")]
pub enum Command {
    NewPdp = 0,
}
impl Cmd for Command {}

#[neli_enum(serialized_type = "u16")]
pub enum Attribute {
    Link = 1,
    Version = 2,
    PeerAddress = 4,
    MsAddress = 5,
    ITei = 8,
    OTei = 9,
}
impl NlAttrType for Attribute {}

/// The tunnel between the UPF and one UE.
pub struct Pdp {
    pub ue: Ipv4Addr,
    pub gnb: Ipv4Addr,
    /// TEID of packets from the gNB to the UPF.
    pub uplink: u32,
    /// TEID of packets from the UPF to the gNB.
    pub downlink: u32,
}

/// Adds `pdp` to the GTP device `device` of the calling thread's network namespace.
pub fn add(device: &str, pdp: &Pdp) -> Result<()> {
    let link = if_nametoindex(device).with_context(|| format!("no device {device}"))?;
    let (router, _) = NlRouter::connect(NlFamily::Generic, None, Groups::empty())?;
    let family = router.resolve_genl_family("gtp").context("the kernel has no gtp driver")?;
    let attributes: GenlBuffer<Attribute, Buffer> = [
        attribute(Attribute::Link, link)?,
        attribute(Attribute::Version, 1)?,
        attribute(Attribute::PeerAddress, address(pdp.gnb))?,
        attribute(Attribute::MsAddress, address(pdp.ue))?,
        attribute(Attribute::ITei, pdp.uplink)?,
        attribute(Attribute::OTei, pdp.downlink)?,
    ]
    .into_iter()
    .collect();
    let message = GenlmsghdrBuilder::default()
        .cmd(Command::NewPdp)
        .version(0)
        .attrs(attributes)
        .build()
        .map_err(|e| anyhow!("cannot build the message: {e}"))?;
    let replies = router.send::<_, _, GenlId, Genlmsghdr<Command, Attribute>>(
        family,
        NlmF::REQUEST | NlmF::ACK | NlmF::CREATE | NlmF::EXCL,
        NlPayload::Payload(message),
    )?;
    for reply in replies {
        reply.context("the gtp driver refused the PDP context")?;
    }
    Ok(())
}

fn attribute(kind: Attribute, value: u32) -> Result<Nlattr<Attribute, Buffer>> {
    let kind = AttrTypeBuilder::default().nla_type(kind).build()?;
    Ok(NlattrBuilder::default().nla_type(kind).nla_payload(value).build()?)
}

/// An address as the driver reads it: in network order.
fn address(address: Ipv4Addr) -> u32 {
    u32::from_ne_bytes(address.octets())
}
