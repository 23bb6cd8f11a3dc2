//! Errors of the API server say what to check, and tokens may be replaced at any time.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use netloom_cluster::{ApiError, Cluster, EventKind, client};
use testbed::ControlPlane;

use crate::{create, definition, plane, pod, run, until};

/// What the agent needs, and no more.
const ROLE: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: agent}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [pods/status], verbs: [patch]}
- {apiGroups: [k8s.cni.cncf.io], resources: [network-attachment-definitions], verbs: [get, list, watch]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
- {apiGroups: [resource.k8s.io], resources: [resourceclaims], verbs: [get]}
- {apiGroups: [resource.k8s.io], resources: [resourceslices], verbs: [list]}
"#;

/// A token that is worth nothing any more once the secret of that name is deleted.
fn token(plane: &ControlPlane, account: &str, secret: &str) -> String {
    plane.kubectl(&["create", "secret", "generic", secret], "").unwrap();
    let args = ["create", "token", account, "--duration=10m", "--bound-object-kind=Secret", "--bound-object-name", secret];
    plane.kubectl(&args, "").unwrap().trim().to_owned()
}

fn account(plane: &ControlPlane) {
    plane.kubectl(&["create", "serviceaccount", "agent"], "").unwrap();
    plane.apply(ROLE).unwrap();
    plane.kubectl(&["create", "clusterrolebinding", "agent", "--clusterrole=agent", "--serviceaccount=default:agent"], "").unwrap();
}

fn with_token_file(plane: &ControlPlane, file: &Path) -> PathBuf {
    let path = plane.write_kubeconfig("by-file", "TOKEN").unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.replace(r#""token": "TOKEN""#, &format!(r#""tokenFile": "{}""#, file.display()));
    assert!(text.contains("tokenFile"));
    std::fs::write(&path, text).unwrap();
    path
}

async fn is_refused(cluster: &Cluster) {
    let begin = Instant::now();
    loop {
        match cluster.fetch_pod("default", "web").await {
            Err(e @ ApiError::Unauthorized { .. }) => {
                assert!(e.is_passing() && e.to_string().contains("check that the token's file is fresh"), "{e}");
                return;
            }
            other => assert!(begin.elapsed() < Duration::from_secs(90), "still {other:?}"),
        }
        // Sleeps: between two looks.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn answers(cluster: &Cluster) {
    let begin = Instant::now();
    while let Err(e) = cluster.fetch_pod("default", "web").await {
        assert!(begin.elapsed() < Duration::from_secs(60), "still {e}");
        // Sleeps: between two looks.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn a_new_token_in_the_file_is_used_at_once() {
    let mut plane = plane("token-file");
    account(&plane);
    create(&plane, &pod("web", "n1", "a"));
    create(&plane, &definition("a", "{}"));
    let file = plane.dir().join("token");
    std::fs::write(&file, token(&plane, "agent", "one") + "\n").unwrap();
    run(async move {
        // The role suffices for all that is asked.
        let cluster = Cluster::start(client(Some(&with_token_file(&plane, &file))).await.unwrap(), "n1");
        until("both lists", || cluster.synced().complete()).await;
        let web = cluster.pod("default", "web").unwrap().reference();
        cluster.write_status(&web, "[]").await.unwrap();
        for _ in 0..2 {
            cluster.event(&web, EventKind::Normal, "Attached", "it works", 1).await.unwrap();
        }

        let next = token(&plane, "agent", "two");
        plane.kubectl(&["delete", "secret", "one"], "").unwrap();
        is_refused(&cluster).await;
        // The watches too meet the old token, when the server comes back.
        plane.kill_api().unwrap();
        let mut plane = tokio::task::spawn_blocking(move || {
            plane.start_api().unwrap();
            plane
        })
        .await
        .unwrap();
        let unauthorized = || cluster.synced().pods.failing.is_some_and(|f| matches!(f.error, ApiError::Unauthorized { .. }));
        until("a watch is refused", unauthorized).await;
        assert!(cluster.pod("default", "web").is_some(), "what is known stays known");
        std::fs::write(&file, next).unwrap();
        assert!(cluster.fetch_pod("default", "web").await.unwrap().is_some(), "the very next request has the new token");
        until("the watches", || cluster.synced().pods.failing.is_none() && cluster.synced().definitions.failing.is_none()).await;
        plane.alive().unwrap();
    });
}

#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn a_new_token_in_the_kubeconfig_is_used_after_a_refusal() {
    let plane = plane("token-inline");
    account(&plane);
    create(&plane, &pod("web", "n1", "a"));
    let config = plane.write_kubeconfig("inline", &token(&plane, "agent", "one")).unwrap();
    run(async {
        let cluster = Cluster::start(client(Some(&config)).await.unwrap(), "n1");
        until("both lists", || cluster.synced().complete()).await;
        let next = token(&plane, "agent", "two");
        plane.kubectl(&["delete", "secret", "one"], "").unwrap();
        is_refused(&cluster).await;
        plane.write_kubeconfig("inline", &next).unwrap();
        answers(&cluster).await;
    });
}

#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn a_program_is_asked_again_for_a_token_that_was_refused() {
    let plane = plane("token-program");
    account(&plane);
    create(&plane, &pod("web", "n1", "a"));
    let answer = |secret: &str| format!(r#"{{"kind": "ExecCredential", "status": {{"token": "{}"}}}}"#, token(&plane, "agent", secret));
    let told = plane.dir().join("credential");
    std::fs::write(&told, answer("one")).unwrap();
    let config = plane.write_kubeconfig("by-program", "TOKEN").unwrap();
    let exec = format!(r#""exec": {{"apiVersion": "client.authentication.k8s.io/v1", "command": "cat", "args": ["{}"]}}"#, told.display());
    let text = std::fs::read_to_string(&config).unwrap().replace(r#""token": "TOKEN""#, &exec);
    std::fs::write(&config, text).unwrap();
    run(async {
        let cluster = Cluster::start(client(Some(&config)).await.unwrap(), "n1");
        until("both lists", || cluster.synced().complete()).await;
        plane.kubectl(&["delete", "secret", "one"], "").unwrap();
        is_refused(&cluster).await;
        std::fs::write(&told, answer("two")).unwrap();
        answers(&cluster).await;
    });
}

#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn another_authority_in_the_kubeconfig_is_trusted_after_distrust() {
    let plane = plane("authority");
    create(&plane, &pod("web", "n1", "a"));
    let good = std::fs::read_to_string(plane.kubeconfig()).unwrap();
    let config = plane.dir().join("other-authority.kubeconfig");
    let other = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/other-ca.crt");
    let bad = good.replace(plane.ca().to_str().unwrap(), other.to_str().unwrap());
    assert_ne!(good, bad);
    std::fs::write(&config, bad).unwrap();
    run(async {
        let cluster = Cluster::start(client(Some(&config)).await.unwrap(), "n1");
        let e = cluster.fetch_pod("default", "web").await.unwrap_err();
        assert!(e.to_string().contains("certificate"), "{e}");
        std::fs::write(&config, good).unwrap();
        answers(&cluster).await;
    });
}

#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn a_missing_rule_is_named() {
    let plane = plane("forbidden");
    plane.kubectl(&["create", "serviceaccount", "nobody"], "").unwrap();
    create(&plane, &pod("web", "n1", "a"));
    let config = plane.write_kubeconfig("nobody", &token(&plane, "nobody", "one")).unwrap();
    run(async {
        let cluster = Cluster::start(client(Some(&config)).await.unwrap(), "n1");
        until("the refusal", || cluster.synced().definitions.failing.is_some() && cluster.synced().pods.failing.is_some()).await;
        let why = cluster.synced().definitions.failing.unwrap().error.to_string();
        let rule = r#"{apiGroups: ["k8s.cni.cncf.io"], resources: ["network-attachment-definitions"], verbs: ["list"]}"#;
        assert!(why.contains(rule), "{why}");
        assert!(!cluster.synced().complete());
        let e = cluster.fetch_pod("default", "web").await.unwrap_err();
        assert!(!e.is_passing() && e.to_string().contains(r#"resources: ["pods"], verbs: ["get"]"#), "{e}");
    });
}

#[test]
#[ignore = "needs Kubernetes: cargo xtask test kubernetes"]
fn a_kind_that_is_not_served_is_no_absent_object() {
    let plane = plane("unserved");
    plane.kubectl(&["delete", "crd", npwg::crd::NAME], "").unwrap();
    run(async {
        let cluster = Cluster::start(crate::admin(&plane).await, "n1");
        let wanted = npwg::DefinitionRef { namespace: "default".to_owned(), name: "a".to_owned() };
        let e = cluster.fetch_definition(&wanted).await.unwrap_err();
        assert!(matches!(e, ApiError::NotServed { .. }) && e.to_string().contains("CustomResourceDefinition"), "{e}");
        until("the list's refusal", || cluster.synced().definitions.failing.is_some()).await;
        plane.define_networks().unwrap();
        until("both lists", || cluster.synced().complete()).await;
    });
}
