//! The caches follow the server, whatever happens to it.

use std::time::{Duration, Instant};

use netloom_cluster::{ApiError, Cluster, MAX_CONFIG, Phase, PodChange, client};
use npwg::DefinitionRef;
use testbed::ControlPlane;

use crate::gate::Gate;
use crate::{create, definition, delete, plane, pod, run, start, until};

fn reference(name: &str) -> DefinitionRef {
    DefinitionRef { namespace: "default".to_owned(), name: name.to_owned() }
}

#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn a_node_sees_its_own_pods_and_all_definitions() {
    let plane = plane("sees");
    create(&plane, &pod("early", "n1", "storage"));
    create(&plane, &definition("storage", r#"{"type":"bridge"}"#));
    run(async {
        let cluster = start(&plane).await;
        let mut changes = cluster.pod_changes();
        let early = cluster.pod("default", "early").expect("listed");
        assert_eq!((early.networks.as_deref(), early.phase, early.deleting), (Some("storage"), Phase::Pending, false));
        assert_eq!((early.requested.as_slice(), early.is_static), (["intel.com/sriov".to_owned()].as_slice(), false));
        let storage = cluster.definition(&reference("storage")).expect("small").expect("listed");
        assert_eq!((storage.config.as_deref(), storage.resource_name.as_deref()), (Some(r#"{"type":"bridge"}"#), Some("intel.com/sriov")));

        create(&plane, &pod("elsewhere", "n2", "storage"));
        create(&plane, &pod("late", "n1", "a,b"));
        until("a new pod", || cluster.pod("default", "late").is_some()).await;
        assert!(matches!(changes.next().await, Some(PodChange::Changed(p)) if p.name == "late"));
        assert!(cluster.pod("default", "elsewhere").is_none(), "a pod of another node");
        assert!(cluster.fetch_pod("default", "elsewhere").await.unwrap().is_some(), "but the server has it");

        plane.kubectl(&["annotate", "pod", "late", "--overwrite", "k8s.v1.cni.cncf.io/networks=c"], "").unwrap();
        until("its change", || cluster.pod("default", "late").is_some_and(|p| p.networks.as_deref() == Some("c"))).await;
        assert!(matches!(changes.next().await, Some(PodChange::Changed(p)) if p.networks.as_deref() == Some("c")));
        plane.kubectl(&["label", "pod", "late", "x=y"], "").unwrap();
        until("its label", || cluster.pod("default", "late").is_some_and(|p| p.labels.get("x").is_some_and(|x| x == "y"))).await;
        assert!(matches!(changes.next().await, Some(PodChange::Changed(p)) if p.labels.len() == 1));
        // What nobody asks about is no change.
        plane.kubectl(&["annotate", "pod", "late", "x=y"], "").unwrap();
        delete(&plane, "pod", "late");
        until("its end", || cluster.pod("default", "late").is_none()).await;
        let end = loop {
            match changes.next().await {
                Some(PodChange::Changed(p)) => assert!(p.deleting, "such an annotation is nothing to tell: {p:?}"),
                end => break end,
            }
        };
        assert!(matches!(end, Some(PodChange::Gone(p)) if p.name == "late"));
        delete(&plane, "net-attach-def", "storage");
        until("the definition's end", || cluster.definition(&reference("storage")) == Ok(None)).await;
    });
}

#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn many_definitions_come_in_pages_and_a_large_one_is_refused_by_name() {
    let plane = plane("pages");
    let many: Vec<String> = (0..230).map(|i| definition(&format!("net{i}"), r#"{"type":"macvlan"}"#)).collect();
    create(&plane, &many.join("\n"));
    create(&plane, &definition("huge", &format!(r#"{{"type":"bridge","x":"{}"}}"#, "y".repeat(MAX_CONFIG))));
    run(async {
        let cluster = start(&plane).await;
        assert!((0..230).all(|i| cluster.definition(&reference(&format!("net{i}"))).unwrap().is_some()));
        let refused = cluster.definition(&reference("huge")).unwrap_err();
        assert!(refused.to_string().contains("default/huge") && refused.size > MAX_CONFIG, "{refused}");
        let fetched = cluster.fetch_definition(&reference("huge")).await.unwrap_err();
        assert_eq!(fetched.to_string(), refused.to_string());
        assert_eq!(cluster.fetch_definition(&reference("none")).await, Ok(None));
        assert_eq!(cluster.fetch_pod("default", "none").await, Ok(None));
        assert_eq!(cluster.fetch_pod("nowhere", "none").await, Ok(None));
    });
}

/// Starts the API server from another thread: this one runs the watches meanwhile.
async fn start_api(mut plane: ControlPlane) -> ControlPlane {
    let started = tokio::task::spawn_blocking(move || {
        plane.start_api().unwrap();
        plane
    });
    started.await.unwrap()
}

#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn the_server_goes_away_and_comes_back() {
    let mut plane = plane("restart");
    create(&plane, &pod("kept", "n1", "a"));
    create(&plane, &pod("doomed", "n1", "a"));
    create(&plane, &definition("kept", r#"{"type":"bridge"}"#));
    run(async move {
        let cluster = start(&plane).await;
        let failing = |c: &Cluster| [c.synced().pods.failing, c.synced().definitions.failing].map(|f| f.is_some());
        let mut rounds = Vec::new();
        // A pause is a tenth of the outage: that is seen once on a machine that does nothing else meanwhile.
        let soon = |(outage, took): &(Duration, Duration)| *took < Duration::from_millis(2500) + *outage / 10;
        for n in 0..8 {
            if n > 1 && rounds.iter().any(soon) {
                break;
            }
            let round = if n % 2 == 0 { "stopped" } else { "killed" };
            let begun = Instant::now();
            if round == "stopped" {
                plane.stop_api().unwrap()
            } else {
                plane.kill_api().unwrap()
            }
            until("the outage is seen", || failing(&cluster) == [true, true]).await;
            // Sleeps: an outage is to last.
            tokio::time::sleep(Duration::from_secs(2)).await;
            let synced = cluster.synced();
            assert!(synced.complete(), "what came once is there");
            let why = synced.pods.failing.expect("an outage").error.to_string();
            assert!(why.contains(&plane.url()) && why.contains("not reachable"), "{why}");
            assert!(cluster.pod("default", "kept").is_some() && cluster.definition(&reference("kept")).unwrap().is_some());
            let e = cluster.fetch_pod("default", "kept").await.unwrap_err();
            assert!(e.is_passing() && e.to_string().contains(&plane.url()), "{e}");

            plane = start_api(plane).await;
            let outage = begun.elapsed();
            rounds.push((outage, until("the watches", || failing(&cluster) == [false, false]).await));
            let name = format!("after-{n}");
            create(&plane, &pod(&name, "n1", "b"));
            until("a pod after the outage", || cluster.pod("default", &name).is_some()).await;
            assert!(cluster.pod("default", "kept").is_some());
        }
        assert!(rounds.iter().any(soon), "outages, and what it took to follow again: {rounds:?}");
        delete(&plane, "pod", "doomed");
        until("a deletion after the outages", || cluster.pod("default", "doomed").is_none()).await;
    });
}

/// While nobody watches, a pod goes and the server forgets its history: a server that was started later has nothing
/// older in its cache, and says 410 to the version that was seen last. So a new list comes, and what went is gone.
#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn a_version_that_is_too_old_means_a_new_list() {
    let mut plane = plane("too-old");
    create(&plane, &pod("stays", "n1", "a"));
    create(&plane, &pod("goes", "n1", "a"));
    let gate = Gate::to(&plane);
    run(async move {
        let cluster = Cluster::start(client(Some(&gate.kubeconfig(&plane))).await.unwrap(), "n1");
        until("both lists", || cluster.synced().complete()).await;
        let mut changes = cluster.pod_changes();
        gate.shut();
        until("the outage is seen", || cluster.synced().pods.failing.is_some()).await;
        delete(&plane, "pod", "goes");
        create(&plane, &pod("comes", "n1", "a"));
        plane.stop_api().unwrap();
        plane = start_api(plane).await;
        assert!(cluster.pod("default", "goes").is_some(), "nothing is dropped on missing information");
        gate.open();
        let too_old = || cluster.synced().pods.failing.is_some_and(|f| f.error.code() == Some(410));
        until("the server says that it is too old", too_old).await;
        until("the new list", || cluster.pod("default", "goes").is_none()).await;
        assert!(cluster.pod("default", "stays").is_some() && cluster.pod("default", "comes").is_some());
        let mut told = Vec::new();
        while told.len() < 2 {
            told.push(match changes.next().await.unwrap() {
                PodChange::Changed(p) => format!("+{}", p.name),
                PodChange::Gone(p) => format!("-{}", p.name),
                PodChange::Missed => "missed".to_owned(),
            });
        }
        told.sort();
        assert_eq!(told, ["+comes", "-goes"]);
        plane.alive().unwrap();
    });
}

/// A server that takes requests and says nothing, as one does that is out of memory.
#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn a_silent_server_costs_ten_seconds_and_no_more() {
    let plane = plane("silent");
    create(&plane, &pod("kept", "n1", "a"));
    run(async {
        let cluster = start(&plane).await;
        plane.pause_api().unwrap();
        let begin = Instant::now();
        let e = cluster.fetch_pod("default", "kept").await.unwrap_err();
        let took = begin.elapsed().as_secs();
        assert!(matches!(e, ApiError::TimedOut { .. }) && e.is_passing() && (9..120).contains(&took), "{took} s: {e}");
        assert!(cluster.pod("default", "kept").is_some() && cluster.synced().complete());
        plane.resume_api().unwrap();
        assert!(cluster.fetch_pod("default", "kept").await.unwrap().is_some());
    });
}
