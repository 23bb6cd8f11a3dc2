//! Who made an attachment: which of its network's plugins were compiled in, and where the others are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cni::{NetworkList, PluginType};
use json::{Object, Value};
use plugin::ResolvedPlugin;

use crate::Chain;

/// The program behind each plugin of an attachment, by the plugin's type. Kept with its result: another directory of plugins, or none,
/// says nothing of who has made it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MadeBy(BTreeMap<String, Maker>);

/// The program behind a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Maker {
    /// This one, of whichever version.
    Builtin,
    /// Another one.
    Program(PathBuf),
}

/// What stands where the path of another program would.
const BUILTIN: &str = concat!("netloom ", env!("CARGO_PKG_VERSION"));

// === impl MadeBy ===

impl MadeBy {
    /// As it is kept, under [`MadeBy::KEY`].
    pub const KEY: &'static str = "madeBy";

    /// Who was behind a plugin; `None` where nobody kept it.
    pub fn of(&self, kind: &PluginType) -> Option<&Maker> {
        self.0.get(kind.as_str())
    }

    /// As JSON.
    pub fn to_object(&self) -> Object {
        let mut o = Object::new();
        for (kind, maker) in &self.0 {
            match maker {
                Maker::Builtin => o.set(kind, BUILTIN),
                Maker::Program(path) => o.set(kind, path.to_string_lossy().into_owned()),
            }
        }
        o
    }

    /// From what is kept beside a result; what other libraries keep has nothing of it.
    pub fn read(kept: &Object) -> Self {
        let maker = |text: &str| if Path::new(text).is_absolute() { Maker::Program(text.into()) } else { Maker::Builtin };
        let one = |(kind, value): (&str, &Value)| Some((kind.to_owned(), maker(value.as_str()?)));
        MadeBy(kept.object(Self::KEY).into_iter().flat_map(Object::iter).filter_map(one).collect())
    }
}

impl Chain {
    /// Who is behind the plugins of a list now.
    pub fn made_by(&self, list: &NetworkList) -> MadeBy {
        let one = |kind: &PluginType| {
            let maker = match self.finder.find(kind).ok()? {
                ResolvedPlugin::Builtin(_) => Maker::Builtin,
                ResolvedPlugin::External(path) if self.finder.is_ours(kind, &path) => Maker::Builtin,
                ResolvedPlugin::External(path) => Maker::Program(path),
            };
            Some((kind.to_string(), maker))
        };
        MadeBy(list.plugins.iter().filter_map(|plugin| one(&plugin.kind)).collect())
    }
}
