//! Netlink messages as bytes (include/uapi/linux/netlink.h, rtnetlink.h, if_link.h): only what the floor sends.

/// `NLM_F_REQUEST | NLM_F_ACK`
const ACKED: u16 = 0x5;
/// `NLM_F_CREATE | NLM_F_EXCL`
const NEW: u16 = 0x600;

/// Messages one after the other, to be sent in one call.
#[derive(Default)]
pub(crate) struct Messages {
    bytes: Vec<u8>,
    count: usize,
}

/// The message, or the attribute, that is being written: its length is known at its end.
#[derive(Clone, Copy)]
pub(crate) struct Open(usize);

// === impl Messages ===

impl Messages {
    /// What there is to send, and how many answers it has.
    pub(crate) fn done(&self) -> (&[u8], usize) {
        (&self.bytes, self.count)
    }

    /// `RTM_NEWLINK` that makes one, with an index (0: the kernel's choice).
    pub(crate) fn new_link(&mut self, index: u32, up: bool) -> Open {
        self.begin(16, NEW, &link(index, up))
    }

    /// `RTM_NEWLINK` that changes one.
    pub(crate) fn change_link(&mut self, index: u32, up: bool) -> Open {
        self.begin(16, 0, &link(index, up))
    }

    /// `RTM_NEWLINK` that brings a link up.
    pub(crate) fn up(&mut self, index: u32) {
        let message = self.change_link(index, true);
        self.end(message);
    }

    /// `RTM_DELLINK` of a group.
    pub(crate) fn delete_group(&mut self, group: u32) {
        let message = self.begin(17, 0, &[0; 16]);
        self.u32(27, group); // IFLA_GROUP
        self.end(message);
    }

    /// `RTM_NEWADDR`
    pub(crate) fn address(&mut self, index: u32, address: [u8; 4], prefix: u8) {
        let mut header = [0; 8];
        header[0] = 2; // AF_INET
        header[1] = prefix;
        header[4..].copy_from_slice(&index.to_ne_bytes());
        let message = self.begin(20, NEW, &header);
        self.attribute(2, &address); // IFA_LOCAL
        self.attribute(1, &address); // IFA_ADDRESS
        self.end(message);
    }

    /// `RTM_NEWROUTE`: the default route.
    pub(crate) fn default_route(&mut self, index: u32, gateway: [u8; 4]) {
        // AF_INET, table main, protocol boot, scope universe, type unicast.
        let message = self.begin(24, NEW, &[2, 0, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0]);
        self.attribute(5, &gateway); // RTA_GATEWAY
        self.u32(4, index); // RTA_OIF
        self.end(message);
    }

    fn begin(&mut self, kind: u16, flags: u16, header: &[u8]) -> Open {
        let open = Open(self.bytes.len());
        self.bytes.extend(0u32.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend((ACKED | flags).to_ne_bytes());
        self.bytes.extend([0; 8]);
        self.bytes.extend(header);
        self.count += 1;
        open
    }

    /// The message is complete.
    pub(crate) fn end(&mut self, open: Open) {
        let length = (self.bytes.len() - open.0) as u32;
        self.bytes[open.0..open.0 + 4].copy_from_slice(&length.to_ne_bytes());
    }

    pub(crate) fn nest(&mut self, kind: u16) -> Open {
        let open = Open(self.bytes.len());
        self.bytes.extend(0u16.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        open
    }

    /// The nested attribute is complete.
    pub(crate) fn unnest(&mut self, open: Open) {
        let length = (self.bytes.len() - open.0) as u16;
        self.bytes[open.0..open.0 + 2].copy_from_slice(&length.to_ne_bytes());
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    pub(crate) fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.bytes.extend((value.len() as u16 + 4).to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    pub(crate) fn u32(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_ne_bytes());
    }
}

/// `struct ifinfomsg`
pub(crate) fn link(index: u32, up: bool) -> [u8; 16] {
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8] = u8::from(up);
    header[12] = u8::from(up);
    header
}
