//! What is written to the API server: the network status, and events.

use netloom_cluster::{Cluster, EventKind, PodRef, Recorded, StatusError};
use serde_json::Value;
use testbed::ControlPlane;

use crate::{create, delete, plane, pod, run, start, until};

const STATUS: &str = r#"[{"name":"default/storage","interface":"net1"}]"#;

async fn of(cluster: &Cluster, name: &str) -> PodRef {
    until("the pod", || cluster.pod("default", name).is_some()).await;
    cluster.pod("default", name).unwrap().reference()
}

fn get(plane: &ControlPlane, args: &[&str]) -> Value {
    let args: Vec<&str> = ["get", "-o", "json"].iter().chain(args).copied().collect();
    serde_json::from_str(&plane.kubectl(&args, "").unwrap()).unwrap()
}

#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn a_status_reaches_the_pod_that_it_is_of_and_no_other() {
    let plane = plane("status");
    create(&plane, &pod("web", "n1", "storage"));
    run(async {
        let cluster = start(&plane).await;
        let web = of(&cluster, "web").await;
        cluster.write_status(&web, STATUS).await.unwrap();
        cluster.write_status(&web, STATUS).await.unwrap();
        let there = get(&plane, &["pod", "web"]);
        assert_eq!(there["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"], STATUS);
        assert_eq!(there["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"], "storage", "others stay");
        until("the status in the cache", || cluster.pod("default", "web").unwrap().has_status(STATUS)).await;

        // The pod is replaced by one of the same name, as a StatefulSet's is.
        delete(&plane, "pod", "web");
        create(&plane, &pod("web", "n1", "storage"));
        let e = cluster.write_status(&web, STATUS).await.unwrap_err();
        assert!(matches!(e, StatusError::Gone { .. }), "{e:?}");
        assert!(get(&plane, &["pod", "web"])["metadata"]["annotations"].get("k8s.v1.cni.cncf.io/network-status").is_none());
        delete(&plane, "pod", "web");
        let e = cluster.write_status(&web, STATUS).await.unwrap_err();
        assert!(matches!(e, StatusError::Gone { .. }), "{e:?}");

        create(&plane, &pod("large", "n1", "storage"));
        let large = of(&cluster, "large").await;
        let e = cluster.write_status(&large, &"x".repeat(300_000)).await.unwrap_err();
        assert!(matches!(e, StatusError::Refused { .. }) && e.to_string().contains("default/large"), "{e:?}");
    });
}

#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn a_status_for_a_server_that_is_away_may_be_tried_again() {
    let mut plane = plane("status-away");
    create(&plane, &pod("web", "n1", "storage"));
    run(async move {
        let cluster = start(&plane).await;
        let web = of(&cluster, "web").await;
        plane.stop_api().unwrap();
        let e = cluster.write_status(&web, STATUS).await.unwrap_err();
        assert!(matches!(e, StatusError::Unreachable { .. }) && e.to_string().contains(&plane.url()), "{e:?}");
    });
}

#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn the_same_event_is_counted_and_one_pod_cannot_tell_too_many() {
    let plane = plane("events");
    create(&plane, &pod("web", "n1", "storage"));
    run(async {
        let cluster = start(&plane).await;
        let web = of(&cluster, "web").await;
        let tell = async |message: &str| cluster.event(&web, EventKind::Warning, "NetworkRefused", message, 1).await.unwrap();
        let long = "ü".repeat(2000);
        assert_eq!(tell("no such definition").await, Recorded::New);
        assert_eq!(tell("no such definition").await, Recorded::Counted);
        assert_eq!(tell("no such definition").await, Recorded::Kept, "three are not twice two");
        assert_eq!(tell("no such definition").await, Recorded::Counted);
        assert_eq!(tell(&long).await, Recorded::New);
        let there = get(&plane, &["events.v1.events.k8s.io"]);
        // An API server tells of its own services, too.
        let of_pod = |event: &&Value| event["regarding"]["uid"] == web.uid.as_str();
        let events: Vec<&Value> = there["items"].as_array().unwrap().iter().filter(of_pod).collect();
        assert_eq!(events.len(), 2, "{there}");
        let first = events.iter().find(|e| e["note"] == "no such definition").expect("the first one");
        assert_eq!((&first["series"]["count"], &first["type"], &first["reason"]), (&4.into(), &"Warning".into(), &"NetworkRefused".into()));
        assert!(plane.kubectl(&["describe", "pod", "web"], "").unwrap().contains("no such definition"), "the pod's owner sees it");
        // Somebody deletes it: told anew when its count is due, not lost.
        plane.kubectl(&["delete", "events", "--all"], "").unwrap();
        for _ in 5..8 {
            assert_eq!(tell("no such definition").await, Recorded::Kept);
        }
        assert_eq!(tell("no such definition").await, Recorded::New);

        let mut told = Vec::new();
        for i in 0..20 {
            told.push(tell(&format!("message {i}")).await);
        }
        let new = told.iter().filter(|t| **t == Recorded::New).count();
        assert_eq!((new, told.last()), (14, Some(&Recorded::Dropped)));
    });
}
