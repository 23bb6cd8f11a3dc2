//! `netloom agent rotate-keys`

use super::answer::{number, objects, shown};
use super::ask::ask;
use crate::cli::RotateKeysArgs;
use crate::output::putln;

pub(crate) fn run(args: &RotateKeysArgs) -> anyhow::Result<()> {
    let value = ask(&args.asked.socket, "rotate-keys", &[])?;
    let before = value.as_object().and_then(|o| objects(o, "keys").last().map(|key| (shown(key, "publicKey"), number(o, "rotation"))));
    let (key, rotation) = before.unwrap_or_default();
    let next = rotation.map_or(1, |rotation| rotation.saturating_add(1));
    putln!("rotation {next} begins: a new key is tried beside {key}; `netloom status` shows how far it is");
    Ok(())
}
