//! What `gc` is told to keep.

use std::io::Read as _;
use std::path::Path;

use anyhow::Context;
use cni::{AttachmentId, CniError, ContainerId, IfName, NetworkName};
use json::{Object, Value};

use crate::cli::GcArgs;

/// Attachments that are valid, of whichever network is collected.
pub(super) struct Valid {
    kept: Vec<(ContainerId, IfName)>,
    file: Option<(String, Value)>,
}

/// Reads what the command line and its file say; `None` stands for `--all`.
pub(super) fn read(args: &GcArgs) -> anyhow::Result<Option<Valid>> {
    if args.all {
        return Ok(None);
    }
    anyhow::ensure!(
        !args.keep.is_empty() || args.valid.is_some(),
        "gc needs the attachments to keep: name each with --keep CONTAINER/IFNAME, or list them in --valid FILE; --all deletes every \
            attachment of the network that is in the cache"
    );
    let kept = args.keep.iter().map(|text| one(text).with_context(|| format!("--keep {text}"))).collect::<anyhow::Result<_>>()?;
    let file = args.valid.as_deref().map(|path| file(path).with_context(|| format!("--valid {}", path.display()))).transpose()?;
    Ok(Some(Valid { kept, file }))
}

fn one(text: &str) -> anyhow::Result<(ContainerId, IfName)> {
    let (container, ifname) = text.split_once('/').context("expected CONTAINER/IFNAME, such as 3f8a2c/eth0")?;
    Ok((ContainerId::parse(container)?, IfName::parse(ifname)?))
}

fn file(path: &Path) -> anyhow::Result<(String, Value)> {
    let mut bytes = Vec::new();
    match path.to_str() {
        Some("-") => std::io::stdin().read_to_end(&mut bytes).map(drop)?,
        _ => bytes = std::fs::read(path)?,
    }
    Ok((path.display().to_string(), json::parse(&bytes)?))
}

// === impl Valid ===

impl Valid {
    /// The attachments of a network.
    pub(super) fn of(self, network: &NetworkName) -> Result<Vec<AttachmentId>, CniError> {
        let id = |(container, ifname)| AttachmentId { network: network.clone(), container, ifname };
        let mut valid: Vec<AttachmentId> = self.kept.into_iter().map(id).collect();
        match self.file {
            None => {}
            Some((path, Value::Array(list))) => valid.extend(AttachmentId::read_list(&list, network, &path)?),
            Some((path, other)) => {
                let object = other.as_object().cloned().unwrap_or_else(Object::new);
                valid.extend(AttachmentId::valid_of(&object, network).map_err(|e| e.within(path))?);
            }
        }
        Ok(valid)
    }
}
