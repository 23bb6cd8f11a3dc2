//! Answers that are lost, late, cut, invented: nothing is made twice, and what is safe is asked again.

use std::time::{Duration, Instant};

use netloom_neutron::{Error, Limits, PortFilter, Refusal};

use crate::proxy::{Act, Proxy, answer};
use crate::scene::{LIMITS, Scene, client};

fn tagged(scene: &Scene) -> PortFilter {
    PortFilter { tags: vec![scene.project.clone()], ..PortFilter::default() }
}

#[tokio::test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
async fn a_port_whose_making_was_not_answered_is_found_and_not_made_again() {
    let scene = Scene::new();
    let proxy = Proxy::before(&scene.server.url(), Duration::ZERO);
    let neutron = client(&proxy.url(), LIMITS);
    let mut made = 0;
    for lost in [Act::Swallow, Act::Cut] {
        proxy.plan(std::slice::from_ref(&lost));
        let e = neutron.create_ports(&[scene.port()]).await.unwrap_err();
        assert!(matches!(e, Error::NoAnswer { .. }) && e.is_uncertain(), "{lost:?}: {e}");
        assert_eq!(proxy.seen(), ["POST /v2.0/ports"], "{lost:?}");
        made += 1;
        let (found, in_database) = (neutron.ports(&tagged(&scene)).await.unwrap(), scene.ports_in_database());
        assert_eq!((found.len(), in_database.len()), (made, made), "{lost:?}");
    }
    // An invention is not a port.
    proxy.plan(&[answer("201 Created", "", r#"{"ports": [{"id": 7}]}"#), answer("200 OK", "", "<html>")]);
    let e = neutron.create_ports(&[scene.port()]).await.unwrap_err();
    assert!(matches!(e, Error::Unreadable { status: 201, .. }) && e.is_uncertain(), "{e}");
    let e = neutron.ports(&tagged(&scene)).await.unwrap_err();
    assert!(matches!(e, Error::Unreadable { status: 200, .. }), "{e}");
}

#[tokio::test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
async fn what_is_safe_is_asked_again() {
    let scene = Scene::new();
    let proxy = Proxy::before(&scene.server.url(), Duration::ZERO);
    let neutron = client(&proxy.url(), LIMITS);
    let id = neutron.create_ports(&[scene.port()]).await.unwrap().value.remove(0).id;
    let path = format!("/v2.0/ports/{id}");

    proxy.plan(&[Act::Swallow, answer("500 Internal Server Error", "", "")]);
    assert_eq!(neutron.port(&id).await.unwrap().id, id);
    assert_eq!(proxy.seen(), [format!("GET {path}"), format!("GET {path}"), format!("GET {path}")]);

    let begun = Instant::now();
    proxy.plan(&[answer("429 Too Many Requests", "Retry-After: 2\r\n", ""), answer("503 Service Unavailable", "", "")]);
    neutron.create_ports(&[scene.port()]).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(2), "as long as the server asked for");
    assert_eq!(proxy.seen().len(), 3);
    assert_eq!(scene.ports_in_database().len(), 2);

    // Both times it is deleted: the second one finds nothing, and that is what was wanted.
    proxy.plan(&[Act::Swallow]);
    assert!(!neutron.delete_port(&id).await.unwrap().value);
    assert_eq!(proxy.seen(), [format!("DELETE {path}"), format!("DELETE {path}")]);
    assert_eq!(scene.ports_in_database().len(), 1);

    // It ends after the third time.
    proxy.plan(
        &[(); 4].map(|()| answer("503 Service Unavailable", "", r#"{"NeutronError": {"type": "Busy", "message": "later", "detail": ""}}"#)),
    );
    let e = neutron.ports(&tagged(&scene)).await.unwrap_err();
    assert_eq!((e.refusal(), e.to_string().as_str()), (Some(Refusal::Busy), "GET ports: later (503 Busy)"));
    assert_eq!(proxy.seen().len(), 3);
}

#[tokio::test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
async fn a_server_that_hangs_or_is_gone_is_told_from_one_that_refuses() {
    let scene = Scene::new();
    let proxy = Proxy::before(&scene.server.url(), Duration::ZERO);
    let short = Limits { timeout: Duration::from_millis(300), attempts: 2, ..LIMITS };
    let impatient = client(&proxy.url(), short);
    proxy.plan(&[Act::Hang]);
    let e = impatient.create_ports(&[scene.port()]).await.unwrap_err();
    assert_eq!(e.to_string(), format!("POST ports: no answer from {}/v2.0: none within 0.3 s; it may have been carried out", proxy.url()));
    proxy.plan(&[Act::Hang, Act::Hang]);
    assert!(impatient.port("x").await.unwrap_err().is_uncertain());
    assert_eq!(proxy.seen().len(), 2);

    // A port of this machine on which nobody listens any more.
    let gone = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let e = client(&format!("http://{gone}"), short).create_ports(&[scene.port()]).await.unwrap_err();
    assert!(matches!(&e, Error::Unreachable { cause, .. } if cause.contains("refused")) && !e.is_uncertain(), "{e}");
    assert_eq!(scene.ports_in_database(), []);
}

#[tokio::test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
async fn no_more_requests_are_on_their_way_than_is_allowed() {
    let scene = Scene::new();
    let proxy = Proxy::before(&scene.server.url(), Duration::from_millis(30));
    let neutron = client(&proxy.url(), Limits { in_flight: 3, ..LIMITS });
    let calls: Vec<_> = (0..12)
        .map(|_| {
            let (neutron, network) = (neutron.clone(), scene.network.clone());
            tokio::spawn(async move { neutron.network(&network).await })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!((proxy.most(), proxy.seen().len()), (3, 12));
}
