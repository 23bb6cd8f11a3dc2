//! The table: a page for each command, in the order of `netloom help`.

use super::Page;

const NONE: Page = Page { path: "", notes: &[], examples: &[], exit: &[], files: &[], environment: &[] };

const FAILED: (&str, &str) = ("1", "The command failed; the message says why");
const SETTINGS: (&str, &str) = ("/etc/netloom/agent.yaml", "The agent's settings");
const AGENT_SOCKET: (&str, &str) = (wire::ADMIN_SOCKET, "The socket on which the agent answers");
const JOURNAL: (&str, &str) = ("/var/lib/netloom/ipam/", "The journal of address allocations");
const POOL_FILES: (&str, &str) = ("/etc/netloom/pools/", "The pool files of this host");
const RECORDS: (&str, &str) = ("/var/lib/netloom/sandboxes/", "The agent's records of attached pods");
const CACHE: (&str, &str) = ("/var/lib/cni/", "Results that container runtimes cache");
const LAB_STATE: (&str, &str) = ("/run/netloom/lab/", "The state of every lab; empty after a reboot");
const KUBECONFIG: (&str, &str) = ("KUBECONFIG", "The kubeconfig file, if --kubeconfig is not given");
const CNI_PATH: (&str, &str) = ("CNI_PATH", "Directories of plugins, separated by colons");

const CNI_FILES: &[(&str, &str)] = &[("/etc/cni/net.d/", "Network configurations"), CACHE];
const CNI_ENVIRONMENT: &[(&str, &str)] = &[
    ("NETCONFPATH", "Sets --conf-dir"),
    ("CNI_IFNAME", "Sets --ifname"),
    ("CNI_PATH", "Directories of plugins; a program there is used instead of the built-in plugin"),
    ("CNI_ARGS", "Arguments for the plugins, as KEY=VALUE;KEY=VALUE"),
    ("CAP_ARGS", "The plugins' runtimeConfig, as a JSON object"),
];
const CNI_EXIT: &[(&str, &str)] = &[("0", "Every plugin succeeded"), ("1", "A plugin failed; its CNI error object is on standard output")];

pub(super) const PAGES: &[Page] = &[
    Page {
        path: "status",
        examples: &[
            ("sudo netloom status", "Show whether this node's agent is ready, and what is pending"),
            ("sudo netloom status -o wide", "Show the agent's version, start time and process ID as well"),
            ("sudo netloom status -o json", "Print the same for a program"),
        ],
        exit: &[("0", "The agent is ready"), ("1", "The agent did not answer"), ("3", "The agent answered and is not ready")],
        files: &[AGENT_SOCKET],
        ..NONE
    },
    Page {
        path: "pods",
        examples: &[
            ("sudo netloom pods", "List every pod of this node and its attachments"),
            ("sudo netloom pods -n shop -o json", "Print the pods of namespace shop as JSON"),
        ],
        exit: &[
            ("0", "Every listed pod is as recorded"),
            ("1", "The agent did not answer"),
            ("3", "A listed pod is Failed, Changed or Unreadable"),
        ],
        files: &[AGENT_SOCKET],
        ..NONE
    },
    Page {
        path: "nodes",
        examples: &[
            ("sudo netloom nodes", "List every node, the way to its pods, and how fast it answers an echo request"),
            ("sudo netloom nodes -o json", "Print the same for a program"),
        ],
        exit: &[
            ("0", "Every other node has answered"),
            ("1", "The agent did not answer"),
            ("3", "A node is not reached, or did not answer"),
        ],
        files: &[AGENT_SOCKET],
        ..NONE
    },
    Page {
        path: "explain",
        examples: &[
            ("sudo netloom explain web", "Explain pod default/web"),
            ("sudo netloom explain shop/web", "Explain pod web of namespace shop"),
            ("sudo netloom explain -n shop web -o json", "Print the same for a program"),
        ],
        exit: &[("0", "The agent knows the pod"), ("1", "The agent does not know the pod, or did not answer")],
        files: &[AGENT_SOCKET],
        ..NONE
    },
    Page {
        path: "agent run",
        examples: &[
            ("sudo netloom agent run --node worker-1", "Serve the node that the API server calls worker-1"),
            ("sudo netloom agent run --manifests networks.yaml pods.yaml", "Serve without a cluster, from manifests"),
        ],
        exit: &[("0", "The agent ended after SIGTERM"), FAILED],
        files: &[SETTINGS, AGENT_SOCKET, RECORDS, JOURNAL, POOL_FILES],
        environment: &[("NODE_NAME", "The node's name, where neither --node nor the settings give one")],
        ..NONE
    },
    Page {
        path: "agent preflight",
        notes: &["Run it on a node: the result depends on the node's uplink, addresses and ports."],
        examples: &[
            ("sudo netloom agent preflight", "Check the cluster that the settings name"),
            ("sudo netloom agent preflight --kubeconfig admin.conf -o json", "Check another cluster, for a program"),
        ],
        exit: &[("0", "Every pod would be attached"), FAILED, ("3", "A pod would be refused")],
        files: &[SETTINGS],
        environment: &[KUBECONFIG],
    },
    Page {
        path: "agent rotate-keys",
        notes: &[
            "Run it on one node. Every node makes a new key, and the old ones go when no node sends by them any more.",
            "`netloom status` shows how far the rotation is.",
        ],
        examples: &[("sudo netloom agent rotate-keys", "Begin a rotation of all nodes' WireGuard keys")],
        exit: &[("0", "The rotation has begun"), ("1", "The agent did not answer, has no WireGuard keys, or rotates them already")],
        files: &[AGENT_SOCKET, ("/var/lib/netloom/wireguard-keys.json", "The node's private keys")],
        ..NONE
    },
    Page {
        path: "agent install",
        examples: &[
            ("sudo netloom agent install", "Install netloom-cni and the runtime's configuration"),
            ("sudo netloom agent install --with-plugins", "Install the built-in plugins under their own names as well"),
        ],
        exit: &[("0", "Everything is installed"), FAILED],
        files: &[SETTINGS, ("/opt/cni/bin/", "Where netloom-cni is installed"), ("/etc/cni/net.d/", "Where the configuration is written")],
        ..NONE
    },
    Page {
        path: "agent uninstall",
        examples: &[
            ("sudo netloom agent uninstall", "Remove the configuration, and netloom-cni where no pod needs it"),
            ("sudo netloom agent uninstall --force", "Remove netloom-cni although pods are attached"),
        ],
        exit: &[("0", "Everything that could be removed is removed"), FAILED],
        files: &[SETTINGS, ("/opt/cni/bin/", "Where netloom-cni is installed"), ("/etc/cni/net.d/", "Where the configuration is written")],
        ..NONE
    },
    Page {
        path: "operator",
        notes: &[
            "Any number of operators may run. The one that holds the Lease works, the others stand by. That no address is granted twice does \
             not depend on the Lease.",
        ],
        examples: &[
            ("netloom operator", "Serve the cluster that this pod runs in"),
            ("netloom operator --kubeconfig admin.conf --no-lease", "Serve a cluster from outside, without leader election"),
            ("netloom operator --openstack /etc/netloom/openstack.yaml", "Make Neutron ports for pods that select them as well"),
            ("netloom operator --kuryr-conf kuryr.conf --cluster prod", "Make them as a kuryr.conf says"),
        ],
        exit: &[("0", "The operator ended after SIGTERM"), FAILED],
        ..NONE
    },
    Page {
        path: "openstack status",
        examples: &[
            ("netloom openstack status --openstack openstack.yaml", "Show whether Neutron can be used, and this cluster's ports"),
            ("netloom openstack status --kuryr-conf kuryr.conf --cluster prod -o json", "Print the same for a program"),
        ],
        exit: &[("0", "Neutron can be used, and each port is a pod's"), FAILED, ("3", "Something is missing, or a port is nobody's")],
        environment: &[KUBECONFIG],
        ..NONE
    },
    Page {
        path: "openstack rights",
        notes: &["Creates up to four ports in the subnet of the settings, one after the other, and deletes each."],
        examples: &[("netloom openstack rights --openstack openstack.yaml", "Name the rights that the credentials lack")],
        exit: &[("0", "They have all rights"), FAILED, ("3", "A right is missing")],
        ..NONE
    },
    Page {
        path: "openstack ports",
        examples: &[
            ("netloom openstack ports --openstack openstack.yaml", "List the ports of this cluster's pods"),
            ("netloom openstack ports --openstack openstack.yaml -o wide", "Show hardware addresses, networks and projects as well"),
        ],
        exit: &[("0", "Every port is ACTIVE"), FAILED, ("3", "A port is not ACTIVE")],
        environment: &[KUBECONFIG],
        ..NONE
    },
    Page {
        path: "openstack pools",
        notes: &[
            "Counts the ready ports of each host, network, set of subnets and of security groups. --delete looks at the operator's Lease for 15 s first, \
             and deletes nothing if an operator renews it: it may be giving these ports to pods.",
        ],
        examples: &[
            ("netloom openstack pools --openstack openstack.yaml", "List the pools, with the number of ports that wait and that pods have"),
            ("netloom openstack pools --openstack openstack.yaml --delete", "Delete the ready ports, after the operator was stopped"),
        ],
        exit: &[("0", "The pools were listed, or the ready ports are deleted"), FAILED],
        environment: &[KUBECONFIG],
        ..NONE
    },
    Page {
        path: "openstack orphans",
        notes: &["Reads the ports first and the pods afterwards. The operator deletes such ports by itself."],
        examples: &[
            ("netloom openstack orphans --openstack openstack.yaml", "List ports whose pods are gone"),
            ("netloom openstack orphans --openstack openstack.yaml --delete", "Delete them"),
        ],
        exit: &[("0", "There is none, or all are deleted"), FAILED, ("3", "There is one")],
        environment: &[KUBECONFIG],
        ..NONE
    },
    Page {
        path: "openstack adopt",
        notes: &[
            "Stop Kuryr's controller first. The pods go on running. It needs the rights of the account netloom-adopt (deploy/openstack/adopt.yaml), or of a \
member of system:masters, and changes nothing of what it refuses.",
        ],
        examples: &[
            ("netloom openstack adopt --openstack openstack.yaml --dry-run", "Show what would be taken over"),
            ("netloom openstack adopt --openstack openstack.yaml", "Take over all ports and networks of another controller"),
        ],
        exit: &[
            ("0", "All were taken over, or there is none"),
            FAILED,
            ("3", "A KuryrPort, a KuryrNetwork or a pod with VIFs in its annotation stays as it is"),
        ],
        environment: &[KUBECONFIG],
        ..NONE
    },
    Page {
        path: "validate",
        notes: &[
            "Reads Pods, pod templates of workloads, Nodes, NetworkAttachmentDefinitions and IPPools, and passes over other kinds. Looks at each \
             network as its plugins would, and at what pods request of networks and of each other.",
        ],
        examples: &[
            ("netloom validate networks.yaml pods/", "Show every mistake with its place and the next step"),
            ("netloom validate - < cluster.yaml", "Look at what kubectl get net-attach-def,pods -A -o yaml has written"),
            ("netloom validate -o json networks.yaml", "Print the same for a program"),
        ],
        exit: &[("0", "No error was found; there may be warnings"), ("1", "An error was found")],
        ..NONE
    },
    Page {
        path: "lab up",
        examples: &[
            ("sudo netloom lab up examples", "Build a lab from every manifest in examples/"),
            ("netloom lab up --dry-run networks.yaml pods.yaml", "Show the plan and every mistake, and change nothing"),
            ("sudo netloom lab up --keep-going examples", "Build what can be built of manifests that have mistakes"),
            ("sudo netloom lab up --name two examples", "Build a second lab beside the first"),
        ],
        exit: &[
            ("0", "Every pod has its networks"),
            ("1", "The lab was not built, because of a mistake in the manifests for example; nothing is left"),
            ("3", "The lab is up, but a pod lacks a network (with --dry-run: a mistake was found)"),
        ],
        files: &[LAB_STATE, ("/etc/cni/net.d/", "Configurations of definitions that have none of their own")],
        ..NONE
    },
    Page {
        path: "lab down",
        examples: &[
            ("sudo netloom lab down", "Take down the lab named lab"),
            ("sudo netloom lab down --all", "Take down every lab"),
            ("sudo netloom lab down --force", "Take it down even if programs run in its pods"),
        ],
        exit: &[("0", "Nothing is left of the lab"), ("1", "Something is left; run the command again")],
        files: &[LAB_STATE],
        ..NONE
    },
    Page {
        path: "lab list",
        examples: &[("netloom lab list", "List the labs"), ("netloom lab ls -o json", "Print the list for a program")],
        exit: &[("0", "The labs are listed, even if there are none"), FAILED],
        files: &[LAB_STATE],
        ..NONE
    },
    Page {
        path: "lab exec",
        examples: &[
            ("sudo netloom lab exec web -- ip addr", "Run a command in the network of pod default/web"),
            ("sudo netloom lab exec node/node-1", "Open a shell in the network of node node-1"),
        ],
        exit: &[
            ("0-125", "The exit code of CMD; 1 also where the pod cannot be entered"),
            ("126", "CMD cannot be executed"),
            ("127", "CMD was not found"),
        ],
        files: &[LAB_STATE],
        environment: &[("SHELL", "The shell that runs where CMD is not given")],
        ..NONE
    },
    Page {
        path: "lab status",
        examples: &[
            ("sudo netloom lab status", "Show every pod's state and addresses"),
            ("sudo netloom lab status web -o json", "Print a pod's network-status annotation"),
        ],
        exit: &[("0", "Every pod is Ready"), FAILED, ("3", "A pod is Failed or Changed")],
        files: &[LAB_STATE],
        ..NONE
    },
    Page {
        path: "lab graph",
        examples: &[
            ("sudo netloom lab graph", "Draw the lab on the terminal"),
            ("sudo netloom lab graph -o svg > lab.svg", "Draw it for a browser"),
            ("sudo netloom lab graph -o dot | dot -Tpng -o lab.png", "Draw it with Graphviz"),
        ],
        exit: &[("0", "The lab is drawn"), FAILED],
        files: &[LAB_STATE],
        ..NONE
    },
    Page {
        path: "verify",
        notes: &["Each failed case names the hop, why it does not pass the packet, what shows it, and what to do."],
        examples: &[
            ("sudo netloom verify", "Verify every network of the lab called lab"),
            ("sudo netloom verify --name test --test pod", "Verify the cases of lab test that have to do with pods"),
            ("sudo netloom verify -o junit > verify.xml", "Write the results for a continuous-integration server"),
            ("netloom verify --list", "List every case, and what it needs"),
            ("netloom verify --cluster", "Verify the cluster of the kubeconfig"),
            ("netloom verify --cluster --internet 203.0.113.10", "Ask a host outside, too"),
            ("netloom verify --cluster --watch --test ^2$", "Print when a path between a cluster's nodes breaks and heals"),
            ("sudo netloom verify --watch --test ^2$", "Print when a path between nodes breaks and heals"),
            ("netloom verify --from netloom-sysdump-lab-20261126T120000.tar.gz", "Explain what a sysdump has recorded"),
        ],
        exit: &[("0", "No case failed"), FAILED, ("3", "A case failed")],
        files: &[LAB_STATE],
        environment: &[KUBECONFIG],
    },
    Page {
        path: "verify perf",
        notes: &["One pair of pods is measured after the other. Latency is that of 500 datagrams to and fro."],
        examples: &[
            ("sudo netloom verify perf", "Measure each pair of the sample on each network of the lab called lab"),
            ("sudo netloom verify perf --network storage --duration 10", "Measure one network for longer"),
            ("sudo netloom verify perf -o json", "Print microseconds and bits per second for a program"),
            ("netloom verify perf --cluster", "Measure the default network of the kubeconfig's cluster"),
        ],
        exit: &[("0", "Every pair was measured"), FAILED, ("3", "A pair could not be measured")],
        files: &[LAB_STATE],
        environment: &[KUBECONFIG],
    },
    Page {
        path: "sysdump",
        notes: &[
            "The archive has versions, settings, records, the journal of addresses, the agent's answers, logs, and a snapshot of links, \
            routes, rules and nftables. Values of keys such as password or token are replaced.",
            "With --cluster, each agent's pod collects its node, and the API server gives the logs, with the rights of the user and no other.",
        ],
        examples: &[
            ("sudo netloom sysdump", "Collect this node"),
            ("sudo netloom sysdump --lab lab -o lab.tar.gz", "Collect the lab called lab"),
            ("sudo netloom sysdump --add /var/log/syslog", "Add a log"),
            ("netloom sysdump --cluster", "Collect every node of the cluster of the kubeconfig"),
            ("netloom sysdump -o - > dump.tar.gz", "Write to standard output, as in the agent's container"),
        ],
        exit: &[("0", "The archive is written; what is not in it is reported"), FAILED],
        files: &[SETTINGS, AGENT_SOCKET, RECORDS, JOURNAL, LAB_STATE],
        environment: &[KUBECONFIG],
    },
    Page {
        path: "cni add",
        examples: &[
            ("sudo netloom cni add mynet /var/run/netns/testing", "Attach a namespace to network mynet as eth0"),
            ("sudo netloom cni add mynet /var/run/netns/testing -i net1", "Attach it as net1"),
        ],
        exit: CNI_EXIT,
        files: CNI_FILES,
        environment: CNI_ENVIRONMENT,
        ..NONE
    },
    Page {
        path: "cni del",
        examples: &[("sudo netloom cni del mynet /var/run/netns/testing", "Detach a namespace from network mynet")],
        exit: CNI_EXIT,
        files: CNI_FILES,
        environment: CNI_ENVIRONMENT,
        ..NONE
    },
    Page {
        path: "cni check",
        examples: &[("sudo netloom cni check mynet /var/run/netns/testing", "Check links, addresses and routes of an attachment")],
        exit: CNI_EXIT,
        files: CNI_FILES,
        environment: CNI_ENVIRONMENT,
        ..NONE
    },
    Page {
        path: "cni gc",
        notes: &[
            "One of --keep, --valid and --all is required, so that missing information deletes nothing.",
            "With --keep and --valid, everything else of the network is deleted: cached attachments with a DEL, and whatever the plugins hold \
             for other attachments, including those of other runtimes. With --all, the cached attachments are deleted and the plugins are not \
             asked, so what other runtimes hold stays.",
        ],
        examples: &[
            ("sudo netloom cni gc mynet --keep cnitool-77383ca0a0715733ca6f/eth0", "Delete every attachment of mynet except one"),
            ("sudo netloom cni gc mynet --all", "Delete every cached attachment of mynet"),
        ],
        exit: CNI_EXIT,
        files: CNI_FILES,
        environment: CNI_ENVIRONMENT,
    },
    Page {
        path: "cni status",
        examples: &[("sudo netloom cni status mynet", "Check whether mynet is ready for an ADD")],
        exit: CNI_EXIT,
        files: CNI_FILES,
        environment: CNI_ENVIRONMENT,
        ..NONE
    },
    Page {
        path: "cni version",
        examples: &[("netloom cni version mynet", "Show the CNI versions that each plugin of mynet supports")],
        exit: CNI_EXIT,
        files: CNI_FILES,
        environment: CNI_ENVIRONMENT,
        ..NONE
    },
    Page {
        path: "dhcp",
        notes: &["The flags are those of the reference plugin's daemon. They work with one dash as well."],
        examples: &[
            ("sudo netloom dhcp", "Run the daemon on its usual socket"),
            ("sudo netloom dhcp --pidfile /run/dhcp.pid --broadcast", "Run it for links that share a hardware address"),
        ],
        exit: &[("0", "Never: the daemon runs until a signal ends it"), FAILED],
        files: &[(dhcp::SOCKET, "The socket on which it listens; leases are stored beside it")],
        ..NONE
    },
    Page {
        path: "ipam status",
        examples: &[
            ("sudo netloom ipam status", "Show the use of every pool of this host"),
            ("sudo netloom ipam status lab --all-addresses", "List every address of pool lab that is in use"),
            ("netloom ipam status --cluster", "Show the cluster's pools"),
        ],
        exit: &[("0", "Every pool has a free address"), FAILED, ("3", "A pool is exhausted, or its file is invalid")],
        files: &[JOURNAL, POOL_FILES],
        environment: &[KUBECONFIG],
        ..NONE
    },
    Page {
        path: "ipam pools",
        examples: &[
            ("sudo netloom ipam pools", "Show every pool of this host"),
            ("sudo netloom ipam pools lab -o yaml", "Print one pool as YAML"),
        ],
        exit: &[("0", "Every pool file is valid"), FAILED, ("3", "A pool file is invalid")],
        files: &[JOURNAL, POOL_FILES],
        ..NONE
    },
    Page {
        path: "ipam trace",
        notes: &["The journal reaches back to the snapshot before the last one."],
        examples: &[
            ("sudo netloom ipam trace 10.50.0.2", "Show which pod has or had an address on this host"),
            ("netloom ipam trace 10.50.0.2 --cluster", "Show which node of the cluster may assign it"),
        ],
        exit: &[("0", "The address was found"), FAILED, ("3", "No pool has the address, and nobody had it")],
        files: &[JOURNAL, POOL_FILES],
        environment: &[KUBECONFIG],
    },
    Page {
        path: "ipam check",
        notes: &["The check takes no lock and delays no ADD or DEL. It looks twice, and reports only what is wrong both times."],
        examples: &[
            ("sudo netloom ipam check", "Compare the journal with what runs on this host"),
            ("sudo netloom ipam check --repair", "Free addresses whose attachments are gone, after a question"),
            ("sudo netloom ipam check --rebuild --yes", "Rebuild a damaged journal without a question"),
        ],
        exit: &[
            ("0", "Journal and host agree, or every difference was repaired"),
            ("1", "The journal cannot be read"),
            ("3", "There are differences that were not repaired"),
        ],
        files: &[JOURNAL, POOL_FILES, RECORDS, CACHE],
        ..NONE
    },
    Page {
        path: "ipam import",
        notes: &[
            "It may be run any number of times: reservations that exist are not changed. An address is left out only if its pod is gone, or is \
             alive with another address on that interface.",
        ],
        examples: &[
            ("netloom ipam import whereabouts --dry-run", "Show what would be imported"),
            ("netloom ipam import whereabouts", "Import every allocation of whereabouts"),
        ],
        exit: &[("0", "Every address is imported or needs nothing"), FAILED, ("3", "An address needs a decision")],
        environment: &[KUBECONFIG],
        ..NONE
    },
    Page {
        path: "ipam export",
        notes: &[
            "Stop Netloom's agents and operator first, and start whereabouts afterwards. It may be run any number of times. An allocation is \
             removed only if its pod is gone, or is alive with another address on that interface.",
        ],
        examples: &[
            ("netloom ipam export whereabouts --dry-run", "Show what would be exported"),
            ("netloom ipam export whereabouts", "Write the objects of whereabouts"),
        ],
        exit: &[("0", "Every address is exported"), FAILED, ("3", "An address needs a decision")],
        environment: &[KUBECONFIG],
        ..NONE
    },
    Page {
        path: "ipam map",
        notes: &["The legend says how many addresses each character stands for."],
        examples: &[
            ("sudo netloom ipam map lab", "Draw pool lab on the terminal"),
            ("sudo netloom ipam map lab --svg lab.svg", "Write a picture of it"),
        ],
        exit: &[("0", "The pool is drawn"), FAILED],
        files: &[JOURNAL, POOL_FILES],
        ..NONE
    },
    Page {
        path: "ipam nodes",
        examples: &[
            ("netloom ipam nodes", "Show the blocks and needs of every node"),
            ("netloom ipam nodes worker-1 -o yaml", "Print the API objects of one node"),
        ],
        exit: &[
            ("0", "Every node has the addresses that it needs"),
            FAILED,
            ("3", "A node lacks addresses, reports a problem, or its agent does not report"),
        ],
        environment: &[KUBECONFIG],
        ..NONE
    },
    Page {
        path: "ipam reclaim",
        notes: &[
            "It asks for confirmation while the Node object exists, or if its agent has reported within the last 10 minutes: a machine that \
             still runs would use addresses that others get.",
        ],
        examples: &[
            ("netloom ipam reclaim worker-1 --dry-run", "Show what would be released"),
            ("netloom ipam reclaim worker-1", "Release every address of a node that is gone for good"),
        ],
        exit: &[("0", "The node's addresses are released"), FAILED, ("3", "Nothing was done, because it was not confirmed")],
        environment: &[KUBECONFIG],
        ..NONE
    },
    Page {
        path: "rules",
        notes: &["Pod names come from this node's agent. Where none answers, container IDs are shown."],
        examples: &[
            ("sudo netloom rules", "Show the firewall entries of every attachment"),
            ("sudo netloom rules shop/web", "Show those of one pod"),
            ("sudo netloom rules --netns /var/run/netns/testing", "Show those in another network namespace"),
        ],
        exit: &[("0", "The entries are shown, even if there are none"), FAILED],
        files: &[AGENT_SOCKET],
        ..NONE
    },
    Page {
        path: "repair",
        notes: &[
            "Entries that exist are not changed, and neither are the rules of other programs. An agent repairs its own pods by itself.",
        ],
        examples: &[
            ("sudo netloom repair --dry-run", "Show which entries are missing"),
            ("sudo netloom repair", "Restore them"),
            ("sudo netloom repair --plugin-dir /usr/lib/cni", "Restore them where the runtime has its plugins elsewhere"),
        ],
        exit: &[
            ("0", "Nothing is missing any more"),
            ("1", "An entry could not be restored"),
            ("3", "An attachment was skipped, or --dry-run found missing entries"),
        ],
        files: &[RECORDS, CACHE, AGENT_SOCKET],
        environment: &[CNI_PATH],
    },
    Page {
        path: "plugins",
        examples: &[("netloom plugins", "List the built-in plugins"), ("netloom plugins bridge", "Show every configuration key of bridge")],
        exit: &[("0", "The plugin exists"), ("1", "There is no such plugin")],
        ..NONE
    },
    Page {
        path: "version",
        notes: &["A kernel feature is probed without changing anything. Most probes need root."],
        examples: &[
            ("netloom version", "Show the version of netloom"),
            ("sudo netloom version -o json", "Print it for a program, with the kernel's features"),
        ],
        exit: &[("0", "Always")],
        ..NONE
    },
    Page {
        path: "completion",
        examples: &[
            ("netloom completion bash > /etc/bash_completion.d/netloom", "Install completion for bash"),
            ("netloom completion zsh > /usr/local/share/zsh/site-functions/_netloom", "Install it for zsh"),
            ("netloom completion fish > ~/.config/fish/completions/netloom.fish", "Install it for fish"),
        ],
        exit: &[("0", "The script is printed"), FAILED],
        ..NONE
    },
    Page {
        path: "man",
        examples: &[("netloom man /usr/local/share/man/man1", "Write the man pages where man finds them")],
        exit: &[("0", "Every page is written"), FAILED],
        ..NONE
    },
];
