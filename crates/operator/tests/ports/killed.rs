//! The operator is killed: at its crash points, and at any moment of a churn. No port is left, none is there twice, none of somebody else's is
//! touched.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use netloom_operator::Options;
use serde_json::json;

use crate::between::{Act, Between};
use crate::scene::{KURYR_PORT, Scene, run, until};

/// What a child serves: files of settings and kubeconfig.
const CHILD: &str = "NETLOOM_TEST_OPERATOR";

/// An operator as a process. It ends with the test, also where that fails.
pub(crate) struct Child(pub(crate) std::process::Child);

/// Begins one that dies at this crash point; at none where it is empty.
pub(crate) fn begin(settings: &Path, kubeconfig: &Path, at: &str) -> Child {
    begin_with_log(settings, kubeconfig, at, Stdio::null())
}

/// The same, with a place for its log.
pub(crate) fn begin_with_log(settings: &Path, kubeconfig: &Path, at: &str, log: Stdio) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let files = format!("{} {}", settings.display(), kubeconfig.display());
    command.args(["--ignored", "--exact", "killed::child"]).env(CHILD, files).env("NETLOOM_CRASH_AT", at);
    Child(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap())
}

impl Drop for Child {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Not a test: the operator as a process of its own.
#[test]
#[ignore = "what the tests here kill"]
fn child() {
    let Ok(files) = std::env::var(CHILD) else { return };
    let (settings, kubeconfig) = files.split_once(' ').unwrap();
    let openstack = netloom_operator::OpenStack::read(Some(settings.as_ref()), None, None).unwrap();
    let options = Options { kubeconfig: Some(kubeconfig.into()), lease: false, openstack: Some(openstack), ..Options::new("child") };
    netloom_operator::run(options).unwrap();
}

#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn at_each_crash_point_the_next_one_goes_on() {
    let scene = Scene::new(&[("red", "10.81.0.0/24"), ("blue", "10.82.0.0/24")]);
    run(async {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = tokio::spawn(scene.store.clone().serve(listener));
        let (settings, kubeconfig) = (scene.settings(&scene.neutron.url()), scene.kubeconfig(port));
        let begin = |at: &str| begin(&settings, &kubeconfig, at);
        for (n, (of_new, of_old)) in
            [("operator-port-made", "operator-port-deleted"), ("operator-kuryrport-written", "operator-kuryrport-released")]
                .into_iter()
                .enumerate()
        {
            let name = format!("p{n}");
            scene.pod(&name, "node-1", "red,blue");
            for at in [of_new, ""] {
                let mut child = begin(at);
                if at.is_empty() {
                    until("it has its ports", || scene.vifs(&name).iter().filter(|(_, active)| *active).count() == 2).await;
                    scene.assert_ports(2, &[]);
                    child.0.kill().unwrap();
                }
                let ended = tokio::task::spawn_blocking(move || child.0.wait().unwrap()).await.unwrap();
                assert!(!ended.success(), "{at} was not reached");
            }
            scene.delete_pod(&name);
            for at in [of_old, ""] {
                let mut child = begin(at);
                if at.is_empty() {
                    until("nothing is left", || scene.ports().is_empty() && scene.kuryr_port(&name).is_none()).await;
                    child.0.kill().unwrap();
                }
                let ended = tokio::task::spawn_blocking(move || child.0.wait().unwrap()).await.unwrap();
                assert!(!ended.success(), "{at} was not reached");
            }
        }
        served.abort();
    });
}

/// Points at which an operator dies: after what it has done, and before it has noted it.
const POINTS: [&str; 4] = ["operator-port-made", "operator-kuryrport-written", "operator-port-deleted", "operator-kuryrport-released"];

/// Twenty pods of three networks come and go without an end, while operators are killed, at their crash points and at any moment, Neutron is restarted
/// and the API server is away. Others' ports stay as they are.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn twenty_pods_come_and_go_while_everything_fails() {
    const PODS: usize = 20;
    let mut scene = Scene::new(&[("red", "10.81.0.0/22"), ("blue", "10.85.0.0/22"), ("green", "10.89.0.0/22")]);
    let kills: usize = std::env::var("NETLOOM_SOAK").ok().and_then(|kills| kills.parse().ok()).unwrap_or(12);
    let others = scene.others();
    let (begun, untouched) = (std::time::Instant::now(), scene.rows(&others));
    run(async {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = tokio::spawn(scene.store.clone().serve(listener));
        let (settings, kubeconfig) = (scene.settings(&scene.neutron.url()), scene.kubeconfig(port));
        let (mut first, mut last, mut at_points, mut restarts) = (0, 0, 0, 0);
        for kill in 0..kills {
            scene.pod(&format!("p{last}"), "node-1", "red,blue,green");
            last += 1;
            if last - first > PODS || (kill % 2 == 1 && last - first > 3) {
                scene.delete_pod(&format!("p{first}"));
                first += 1;
            }
            let point = if kill % 3 == 0 { POINTS[kill / 3 % POINTS.len()] } else { "" };
            let is_away = kill % 7 == 5;
            if is_away {
                scene.store.stop();
            }
            let mut child = begin(&settings, &kubeconfig, point);
            let until_dead = tokio::time::Instant::now() + Duration::from_secs(20);
            // It is not sure that it comes by there: there may be nothing to delete.
            let is_dead = |child: &mut Child| child.0.try_wait().unwrap().is_some();
            let moment = Duration::from_millis(kill as u64 * 397 % 3000);
            while !is_dead(&mut child) && !point.is_empty() && tokio::time::Instant::now() < until_dead {
                // Sleeps: between two looks.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            at_points += usize::from(!point.is_empty() && is_dead(&mut child));
            if point.is_empty() {
                // Sleeps: the moment of the kill is what is tried, from before the first request to long after it.
                tokio::time::sleep(moment).await;
            }
            if is_away {
                scene.store.start();
            }
            if kill % 25 == 11 {
                let neutron = std::sync::Arc::get_mut(&mut scene.neutron).unwrap();
                neutron.stop().unwrap();
                neutron.start().unwrap();
                restarts += 1;
            }
            drop(child);
        }
        let child = begin(&settings, &kubeconfig, "");
        let pods = scene.pods();
        for (name, _) in &pods {
            until(&format!("{name} has its ports"), || scene.vifs(name).iter().filter(|(_, active)| *active).count() == 3).await;
        }
        until("and no others are left", || scene.ports().len() == 3 * pods.len() + others.len()).await;
        scene.assert_ports(3, &others);
        pods.iter().for_each(|(name, _)| scene.delete_pod(name));
        until("nothing is left", || {
            scene.ports().len() == others.len() && scene.store.objects(KURYR_PORT, "KuryrPort").unwrap().is_empty()
        })
        .await;
        assert_eq!(scene.rows(&others), untouched);
        assert!(at_points > 0 && (restarts > 0 || kills < 12), "{at_points} {restarts}");
        println!(
            "{kills} kills, {at_points} of them at crash points, {restarts} restarts of Neutron, {last} pods: {:.0?}",
            begun.elapsed()
        );
        drop(child);
        served.abort();
    });
}

/// Neutron carries out what a killed operator has sent when the next one has listed all ports, and makes them itself.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn ports_that_a_killed_operators_request_makes_late_are_found() {
    let scene = Scene::new(&[("red", "10.81.0.0/24"), ("blue", "10.82.0.0/24")]);
    let is_held = Arc::new(AtomicBool::new(false));
    let held = Arc::clone(&is_held);
    let late = Between::before(&scene.neutron.url(), move |request| {
        let is_first = request.starts_with("POST /v2.0/ports") && !held.swap(true, Ordering::Relaxed);
        if is_first { Act::Late } else { Act::Pass }
    });
    run(async {
        scene.pod("web", "node-1", "red,blue");
        let killed = scene.operator_of(scene.options(&late.url()));
        until("it has asked for ports", || is_held.load(Ordering::Relaxed)).await;
        drop(killed);
        // The ports are there twice for as long as that request may take. No other list comes in time.
        let seldom = json!({"multiVifDrivers": ["npwg_multiple_interfaces"], "watchReconcilePeriod": 3600});
        let more = json!({"neutron": {"timeout": 40}, "openstack": {"kubernetes": seldom}});
        let _operator = scene.operator_of(scene.options_with(&scene.neutron.url(), &more));
        until("it has its ports", || scene.vifs("web").iter().filter(|(_, active)| *active).count() == 2).await;
        late.release();
        until("the request is carried out", || scene.ports().len() == 4).await;
        until("those are gone", || scene.ports().len() == 2).await;
        scene.assert_ports(2, &[]);
        let is_in_use = |id: &str| scene.kuryr_port("web").unwrap().to_string().contains(id);
        assert!(scene.ports().iter().all(|port| is_in_use(&port.id)), "those that the pod has stay");
    });
}

#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn at_any_moment_of_a_churn() {
    let scene = Scene::new(&[("red", "10.81.0.0/24"), ("blue", "10.82.0.0/24")]);
    let kills: u32 = std::env::var("NETLOOM_SOAK").ok().and_then(|kills| kills.parse().ok()).unwrap_or(25);
    run(async {
        let mut last = 0;
        for kill in 0..kills {
            scene.pod(&format!("p{last}"), "node-1", "red,blue");
            last += 1;
            if last > 4 && kill % 2 == 0 {
                scene.delete_pod(&format!("p{}", last - 5 + kill % 2));
            }
            let operator = scene.operator();
            // Sleeps: the moment of the kill is what is tried, from before the first request to long after it.
            tokio::time::sleep(Duration::from_millis(u64::from(kill) * 37 % 900)).await;
            drop(operator);
        }
        let _operator = scene.operator();
        let pods = scene.pods();
        until("each has its ports", || pods.iter().all(|(name, _)| scene.vifs(name).iter().filter(|(_, active)| *active).count() == 2))
            .await;
        until("and no others are left", || scene.ports().len() == 2 * pods.len()).await;
        scene.assert_ports(2, &[]);
        for (name, _) in &pods {
            scene.delete_pod(name);
        }
        until("nothing is left", || scene.ports().is_empty() && pods.iter().all(|(name, _)| scene.kuryr_port(name).is_none())).await;
    });
}
