//! What Neutron, or who stands before it, may answer: each has a name that the pod's owner reads, no port is lost, none is made twice, and pods that do
//! not need it do not wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::between::{Act, Between};
use crate::scene::{NODE, Scene, run, until};

/// An answer that is none of success, as Neutron writes it.
fn refusal(status: u16, kind: &str) -> String {
    let body = json!({"NeutronError": {"type": kind, "message": format!("told for {kind}"), "detail": ""}}).to_string();
    answer(&format!("{status} No"), &body)
}

fn answer(status: &str, body: &str) -> String {
    let head = "Content-Type: application/json\r\nConnection: close";
    format!("HTTP/1.1 {status}\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// What comes instead of the answer to a request for the victim alone, and what its owner reads.
fn own(number: usize) -> Option<(Act, String)> {
    let refused = |status: u16, kind: &str| (Act::Answer(refusal(status, kind)), format!("told for {kind} ({status} {kind}"));
    Some(match number {
        1 => refused(400, "HTTPBadRequest"),
        2 => refused(403, "PolicyNotAuthorized"),
        3 => refused(404, "SecurityGroupNotFound"),
        4 => refused(409, "OverQuota"),
        5 => refused(409, "IpAddressGenerationFailure"),
        6 => refused(409, "MacAddressInUse"),
        7 => refused(409, "SomethingNew"),
        8 => refused(412, "RevisionNumberConstraintFailed"),
        9 => refused(413, "RequestTooLarge"),
        10 => refused(500, "HTTPInternalServerError"),
        11 => (Act::Answer(answer("201 Created", "{\"ports\": [{\"id\": 7}]}")), "the answer cannot be read".to_owned()),
        12 => (Act::Answer(answer("201 Created", "<html>")), "the answer cannot be read".to_owned()),
        _ => return None,
    })
}

/// What may concern each request, whoever it is for: all wait, and are told.
fn of_all(number: usize) -> Option<(Act, &'static str)> {
    Some(match number {
        1 => (Act::Answer(refusal(401, "Unauthorized")), "(401 Unauthorized"),
        2 => (Act::Answer(refusal(429, "TooManyRequests")), "(429 TooManyRequests"),
        3 => (Act::Answer(refusal(503, "ServiceUnavailable")), "(503 ServiceUnavailable"),
        4 => (Act::Answer(answer("502 Bad Gateway", "<html>")), "refused, without a message (502)"),
        5 => (Act::Hang, "it may have been carried out"),
        6 => (Act::Cut, "it may have been carried out"),
        _ => return None,
    })
}

#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn a_bad_answer_holds_up_the_pod_that_it_is_for() {
    let scene = Scene::new(&[("red", "10.81.0.0/24"), ("blue", "10.82.0.0/24")]);
    let at = Arc::new(AtomicUsize::new(0));
    let (number, blue) = (Arc::clone(&at), scene.subnets["blue"].clone());
    let between = Between::before(&scene.neutron.url(), move |request| {
        let is_victims = request.starts_with("POST /v2.0/ports") && request.contains(&blue);
        own(number.load(Ordering::Relaxed)).filter(|_| is_victims).map_or(Act::Pass, |(act, _)| act)
    });
    run(async {
        let _operator = scene.operator_of(scene.options(&between.url()));
        for number in 1.. {
            let Some((_, words)) = own(number) else { break };
            let (victim, other) = (format!("victim-{number}"), format!("other-{number}"));
            at.store(number, Ordering::Relaxed);
            scene.pod(&victim, "node-1", "red,blue");
            scene.pod(&other, "node-1", "red");
            until(&format!("the other one is served beside {words}"), || scene.vifs(&other).len() == 1).await;
            until(&format!("the owner reads {words}: {:?}", scene.events(&victim)), || {
                scene.events(&victim).iter().any(|event| event.starts_with("NeutronPortsFailed: ") && event.contains(&words))
            })
            .await;
            assert_eq!((scene.vifs(&victim).len(), scene.events(&other).len()), (0, 0), "{words}");
            at.store(0, Ordering::Relaxed);
            until(&format!("it is served after {words}"), || scene.vifs(&victim).len() == 2).await;
            until("each has its own", || scene.ports().len() == 3).await;
            scene.assert_owned(&[(&victim, 2), (&other, 1)]);
            [&victim, &other].iter().for_each(|pod| scene.delete_pod(pod));
            until("nothing is left", || scene.ports().is_empty() && scene.kuryr_port(&victim).is_none()).await;
        }
    });
}

#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn an_answer_that_is_everybodys_loses_nothing() {
    let scene = Scene::new(&[("red", "10.81.0.0/24")]);
    let at = Arc::new(AtomicUsize::new(0));
    let number = Arc::clone(&at);
    let between = Between::before(&scene.neutron.url(), move |request| {
        let is_one = request.starts_with("POST /v2.0/ports");
        of_all(number.load(Ordering::Relaxed)).filter(|_| is_one).map_or(Act::Pass, |(act, _)| act)
    });
    run(async {
        let _operator = scene.operator_of(scene.options_with(&between.url(), &json!({"neutron": {"timeout": 20}})));
        for number in 1.. {
            let Some((_, words)) = of_all(number) else { break };
            let pods = ["first", "second"].map(|name| format!("{name}-{number}"));
            at.store(number, Ordering::Relaxed);
            pods.iter().for_each(|pod| scene.pod(pod, "node-1", "red"));
            let is_told = |pod: &String| scene.events(pod).iter().any(|event| event.contains(words));
            until(&format!("both owners read {words}"), || pods.iter().all(is_told)).await;
            at.store(0, Ordering::Relaxed);
            until(&format!("both are served after {words}"), || pods.iter().all(|pod| scene.vifs(pod).len() == 1)).await;
            until("each has its own", || scene.ports().len() == 2).await;
            scene.assert_ports(1, &[]);
            pods.iter().for_each(|pod| scene.delete_pod(pod));
            until("nothing is left", || scene.ports().is_empty() && pods.iter().all(|pod| scene.kuryr_port(pod).is_none())).await;
        }
    });
}

/// The same where a port is deleted: those of other pods go, and this one goes later.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn a_port_that_neutron_does_not_delete_is_deleted_later() {
    const STATUSES: [u16; 6] = [400, 403, 409, 412, 500, 503];
    let scene = Scene::new(&[("red", "10.81.0.0/24"), ("blue", "10.82.0.0/24")]);
    let is_bad = Arc::new(std::sync::Mutex::new((0, String::new())));
    let of = Arc::clone(&is_bad);
    let between = Between::before(&scene.neutron.url(), move |request| {
        let (status, id) = of.lock().unwrap().clone();
        let is_its = status != 0 && request.starts_with(&format!("DELETE /v2.0/ports/{id}"));
        if is_its { Act::Answer(refusal(status, "Kept")) } else { Act::Pass }
    });
    run(async {
        let _operator = scene.operator_of(scene.options(&between.url()));
        for status in STATUSES {
            let (kept, other) = (format!("kept-{status}"), format!("other-{status}"));
            scene.pod(&kept, NODE, "blue");
            scene.pod(&other, NODE, "red");
            until("both have theirs", || scene.vifs(&kept).len() == 1 && scene.vifs(&other).len() == 1).await;
            let id = scene.kuryr_port(&kept).unwrap()["status"]["vifs"]["eth1"]["vif"]["versioned_object.data"]["id"]
                .as_str()
                .unwrap()
                .to_owned();
            *is_bad.lock().unwrap() = (status, id.clone());
            [&kept, &other].iter().for_each(|pod| scene.delete_pod(pod));
            until("the other one's is gone", || scene.kuryr_port(&other).is_none() && scene.ports().len() == 1).await;
            assert_eq!(scene.ports()[0].id, id);
            assert!(scene.kuryr_port(&kept).is_some(), "its finalizer keeps it");
            is_bad.lock().unwrap().0 = 0;
            until("it is gone as well", || scene.ports().is_empty() && scene.kuryr_port(&kept).is_none()).await;
        }
    });
}
