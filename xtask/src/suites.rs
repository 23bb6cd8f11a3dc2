//! The test suites: what each proves, what it needs, what it runs. `cargo xtask test` runs them, docs/internals/tests.md shows them.

/// A suite.
pub(crate) struct Suite {
    /// Its name on a command line.
    pub(crate) name: &'static str,
    /// What it proves.
    pub(crate) proves: &'static str,
    /// How long it takes on two cores, built: in `make test` beside two others, else alone. `-`: not measured.
    pub(crate) takes: &'static str,
    /// Where it runs.
    pub(crate) place: Place,
    /// What must be there before.
    pub(crate) needs: &'static [Need],
    /// What is run.
    pub(crate) jobs: &'static [Job],
}

/// Where a suite runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In `make test`, side by side with the other ones there.
    Test,
    /// In `make test-all` alone, one after the other.
    All,
}

/// What a suite needs that cargo does not bring.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// What `scripts/setup.sh` installs under this word.
    Packages(&'static str),
    /// The reference plugins and Kubernetes, built with Go: `scripts/peers.sh`.
    Peers,
    /// A kernel with every module: `scripts/guest.sh --fetch`.
    Guest,
}

/// What a suite runs.
pub(crate) enum Job {
    /// A test executable of `tests/`, with arguments and variables.
    Tests(&'static str, &'static [&'static str], &'static [(&'static str, &'static str)]),
    /// A test executable of a package: its library's own tests where the second name is that of the package.
    Of(&'static str, &'static str, &'static [&'static str]),
    /// Every other test executable of the workspace.
    Units,
    /// The examples in the documentation of crates.
    Documentation,
    /// A command of this checkout.
    Command(&'static [&'static str]),
}

use Job::{Command, Documentation, Of, Tests, Units};
use Need::{Guest, Packages, Peers};

/// Libtest runs what `#[ignore]` marks, alone.
const IGNORED: &[&str] = &["--ignored"];
const KUBERNETES: &[(&str, &str)] = &[("NETLOOM_TEST_API", "kubernetes")];

/// All suites. Those of [`Place::Test`] begin in this order: the longest first.
pub(crate) const SUITES: &[Suite] = &[
    Suite {
        name: "robustness",
        proves: "a process may be killed between any two steps, a disk may be full, input may be hostile: nothing leaks, no address is held twice",
        takes: "5 min 35 s",
        place: Place::Test,
        needs: &[Packages("test")],
        jobs: &[Tests("robustness", &[], &[])],
    },
    Suite {
        name: "plugins",
        proves: "every built-in plugin and each of its keys, judged by `ip`, `bridge`, `nft`, `tc` and packets; bad input; STATUS and GC",
        takes: "4 min 28 s",
        place: Place::Test,
        needs: &[Packages("test")],
        jobs: &[Tests("plugins", &[], &[])],
    },
    Suite {
        name: "agent",
        proves: "the agent on a node, with an API server inside the test: the standard's clauses, outages, kills, questions, repair",
        takes: "6 min 4 s",
        place: Place::Test,
        needs: &[Packages("test")],
        jobs: &[Tests("agent", &[], &[])],
    },
    Suite {
        name: "addresses",
        proves: "pools, whereabouts' configurations, `netloom ipam`, and a cluster's nodes in one process: no address twice, none lost",
        takes: "2 min 7 s",
        place: Place::Test,
        needs: &[Packages("test")],
        jobs: &[Tests("addresses", &[], &[])],
    },
    Suite {
        name: "units",
        proves: "each crate by itself: captured bytes, models, properties, and the operator with an API server inside the test",
        takes: "3 min 23 s",
        place: Place::Test,
        needs: &[Packages("test")],
        jobs: &[Units, Documentation],
    },
    Suite {
        name: "lab",
        proves: "`netloom lab` as a person runs it, and that the documents quote what the program prints",
        takes: "11 s",
        place: Place::Test,
        needs: &[Packages("test")],
        jobs: &[Tests("lab", &[], &[])],
    },
    Suite {
        name: "runtime",
        proves: "`netloom-cni` and `netloom cni` without a cluster: the agent's socket, kept DELs, the result cache, several networks in one call",
        takes: "11 s",
        place: Place::Test,
        needs: &[Packages("test")],
        jobs: &[Tests("runtime", &[], &[])],
    },
    Suite {
        name: "parity",
        proves: "each plugin beside the reference plugin of its name, and results beside the reference library: every difference is explained",
        takes: "6 min 46 s",
        place: Place::All,
        needs: &[Packages("test"), Peers],
        jobs: &[
            Tests("parity", &["--skip", "guest"], &[]),
            Tests("plugins", IGNORED, &[]),
            Tests("runtime", IGNORED, &[]),
            Tests("agent", &["--ignored", "repair::", "changing_over::"], &[]),
            Of("netloom-ipam", "host_local", &["--ignored", "--skip", "child"]),
        ],
    },
    Suite {
        name: "limits",
        proves: "agent and operator within the memory limit of their manifests, while others create the largest objects allowed",
        takes: "2 min 39 s",
        place: Place::All,
        needs: &[Packages("test")],
        jobs: &[Tests("agent", &["--ignored", "memory::"], &[])],
    },
    Suite {
        name: "kubernetes",
        proves: "the agent's suite, and what crates ask of an API server, before a real one",
        takes: "8 min",
        place: Place::All,
        needs: &[Packages("test"), Packages("cluster"), Peers],
        jobs: &[
            Tests("agent", &["--include-ignored"], KUBERNETES),
            Tests("addresses", IGNORED, KUBERNETES),
            Of("netloom-agent", "alone", IGNORED),
            Of("netloom-cluster", "api", IGNORED),
            Of("netloom-cluster", "memory", IGNORED),
            Of("netloom-objects", "agree", IGNORED),
            Of("netloom-operator", "netloom-operator", IGNORED),
            Of("netloom-testbed", "control", IGNORED),
        ],
    },
    Suite {
        name: "path",
        proves: "kubelet, containerd, `netloom-cni`, agent, and back: pods in storms, agents that come, go and are replaced",
        takes: "4 min 15 s",
        place: Place::All,
        needs: &[Packages("cluster"), Peers],
        jobs: &[Tests("cluster", &["path::", "testbed::"], &[])],
    },
    Suite {
        name: "verify",
        proves: "`netloom verify --cluster` on a real Kubernetes: every case of the matrix over direct routes and vxlan, both families, both modes of kube-proxy; faults are named, nothing is left",
        takes: "6 min 30 s",
        place: Place::All,
        needs: &[Packages("cluster"), Peers],
        jobs: &[Tests("cluster", &["verify::"], &[])],
    },
    Suite {
        name: "granted",
        proves: "addresses of a cluster on a real API server: the operator, its manifests, claims, lost nodes, etcd put back",
        takes: "3 min 55 s",
        place: Place::All,
        needs: &[Packages("cluster"), Peers],
        jobs: &[Tests("cluster", &["granted::", "operator::", "deploy::"], &[])],
    },
    Suite {
        name: "soak",
        proves: "ten agents and three operators while each of them, the API server, Nodes and ranges go and come: no duplicate is unreported, nothing leaks (`NETLOOM_MINUTES=30`)",
        takes: "-",
        place: Place::All,
        needs: &[Packages("cluster"), Peers],
        jobs: &[Tests("cluster", &["--ignored", "granted::soak::"], &[])],
    },
    Suite {
        name: "coexistence",
        proves: "beside podman, dockerd, firewalld and kube-proxy, the real ones",
        takes: "36 s",
        place: Place::All,
        needs: &[Packages("test"), Packages("coexistence"), Packages("cluster"), Peers],
        jobs: &[Tests("coexistence", &[], KUBERNETES)],
    },
    Suite {
        name: "neutron",
        proves: "what is asked of OpenStack, before a real Neutron and a real Keystone, and a proxy between that is slow, cuts and lies; pods' ports, with the operator killed; pods of two nodes, wired by Neutron's own agents, also under a kubelet; a node that changes from kuryr-cni and back",
        takes: "-",
        place: Place::All,
        needs: &[Packages("neutron"), Packages("cluster"), Peers],
        jobs: &[
            Of("netloom-neutron", "real", IGNORED),
            Of("netloom-operator", "ports", &["--ignored", "--skip", "child"]),
            Tests("cluster", &["openstack::"], KUBERNETES),
        ],
    },
    Suite {
        name: "guest",
        proves: "what needs kernel modules: 802.1Q, bridges that filter VLANs, Open vSwitch's datapath, nested ports of Neutron, ipvlan, vrf, dummy, bonds, SCTP, WireGuard",
        takes: "5 min 43 s",
        place: Place::All,
        needs: &[Packages("guest"), Peers, Guest],
        jobs: &[Tests("guest", &["boot::"], &[])],
    },
    Suite {
        name: "simulate",
        proves: "a million steps of the life of a host's pools, with kills and power cuts",
        takes: "2 min 46 s",
        place: Place::All,
        needs: &[],
        jobs: &[Command(&["scripts/simulate.sh"])],
    },
    Suite {
        name: "fuzz",
        proves: "what reads untrusted bytes: every fuzz target for eight seconds",
        takes: "-",
        place: Place::All,
        needs: &[Packages("fuzz")],
        jobs: &[Command(&["scripts/fuzz.sh", "8"])],
    },
];

impl Suite {
    /// The command that runs it.
    fn command(&self) -> String {
        match self.place {
            Place::Test => format!("`make test SUITE={}`", self.name),
            Place::All => format!("`make test-all SUITE={}`", self.name),
        }
    }

    /// What it needs besides packages of the distribution.
    fn also_needs(&self) -> String {
        let word = |need: &Need| match need {
            Packages(_) => None,
            Peers => Some("Go"),
            Guest => Some("a guest kernel"),
        };
        let words: Vec<&str> = self.needs.iter().filter_map(word).collect();
        if words.is_empty() { "-".to_owned() } else { words.join(", ") }
    }
}

/// The table of docs/internals/tests.md.
pub(crate) fn table() -> String {
    let mut table = "| suite | proves | takes | needs | run by |\n|---|---|---|---|---|\n".to_owned();
    for suite in SUITES {
        table += &format!("| {} | {} | {} | {} | {} |\n", suite.name, suite.proves, suite.takes, suite.also_needs(), suite.command());
    }
    table
}
