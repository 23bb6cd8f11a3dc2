//! A UDP client that goes on sending from one port: it is led where its port leads now.

use std::net::UdpSocket;

use netloom_tests::answer_to;
use serde_json::json;

use crate::portmap::scene::{HOST4, HOST6, Scene, udp};

fn client(scene: &Scene, any: &str) -> UdpSocket {
    scene.host.within("outside", || UdpSocket::bind((any, 0)).unwrap())
}

/// Whom one socket reaches, within a minute.
fn reached(socket: &UdpSocket, at: &str) -> String {
    let said = answer_to(socket, (at.parse::<std::net::IpAddr>().unwrap(), 5353).into(), 60);
    said.unwrap_or_else(|| "nobody answers".to_owned()).split(' ').next().unwrap().to_owned()
}

/// From the host, to one container, to another one, and back to the host.
#[test]
fn a_client_follows_its_port() {
    for at in [json!(null), json!([HOST4, HOST6])] {
        let scene = Scene::new();
        // At all addresses, or at one of each family.
        let mappings = match at.as_array() {
            None => json!([udp(5353, 53)]),
            Some(at) => {
                json!(
                    at.iter().map(|at| json!({"hostPort": 5353, "containerPort": 53, "protocol": "UDP", "hostIP": at})).collect::<Vec<_>>()
                )
            }
        };
        for address in [HOST4, HOST6] {
            scene.answer_at("", address, 5353);
        }
        let clients = [(client(&scene, "0.0.0.0"), HOST4), (client(&scene, "::"), HOST6)];
        let all = |who: &str| clients.iter().for_each(|(socket, at)| assert_eq!(reached(socket, at), who, "{at} {mappings}"));
        all("host");
        let first = scene.add("c1", &mappings);
        scene.answer("c1", 53);
        all("c1");
        scene.del(&first);
        all("host");
        let second = scene.add("c2", &mappings);
        scene.answer("c2", 53);
        all("c2");
        // GC is a DEL for those that nobody has any more.
        let gc = scene.cni("c2").call("GC", "portmap", gc(&second.config).to_string());
        assert_eq!((gc.code, gc.stdout.as_str()), (0, ""), "{gc:?}");
        all("host");
        scene.del(&second);
        scene.expect_nothing();
    }
}

fn gc(config: &serde_json::Value) -> serde_json::Value {
    let mut config = config.clone();
    config["cni.dev/valid-attachments"] = json!([]);
    config
}
