//! Tables of legacy iptables, as its own programs fill them.

use std::process::Command;

use linux::{Family, xtables};

use crate::space::Space;

#[test]
fn a_table_that_does_nothing_is_not_in_use() {
    let space = Space::new();
    for (family, program) in [(Family::V4, "iptables-legacy"), (Family::V6, "ip6tables-legacy")] {
        let tables = |args: &str| {
            space.run(|inside, _| {
                let output = Command::new(program).args(args.split(' ')).output().unwrap();
                assert!(output.status.success(), "{program} {args}: {}", String::from_utf8_lossy(&output.stderr));
                (xtables::legacy_tables(inside, family).unwrap(), xtables::legacy_tables_in_use(inside, family).unwrap())
            })
        };
        let none = Vec::<String>::new();
        // Who looks makes the table be there.
        assert_eq!(tables("-t filter -n -L"), (vec!["filter".to_owned()], none.clone()), "{program}");
        assert_eq!(tables("-A FORWARD -p udp -j DROP").1, ["filter"], "{program}");
        assert_eq!(tables("-D FORWARD -p udp -j DROP").1, none, "{program}");
        assert_eq!(tables("-P FORWARD DROP").1, ["filter"], "{program}");
        assert_eq!(tables("-P FORWARD ACCEPT").1, none, "{program}");
        assert_eq!(tables("-t nat -A POSTROUTING -j MASQUERADE").1, ["nat"], "{program}");
        // A chain of one's own is none that a packet meets, but it is there for something.
        assert_eq!(tables("-N own").1.len(), 2, "{program}");
    }
}
