//! A node that loses its power: everything that does not outlive it is gone.

use anyhow::Result;

use super::Node;

/// Kills every process of the node but the one that holds it and what that waits for, then takes away what is in memory on
/// a real node: mounts, `/run`, links, rules.
const POWER_OFF: &str = r#"
for dir in /proc/[0-9]*; do
    pid=${dir#/proc/}
    read -r _ _ _ parent _ <$dir/stat || continue
    [ $pid = 1 ] || [ $pid = $$ ] || [ $parent = 1 -a "$(cat $dir/comm)" = cat ] || kill -KILL $pid
done 2>/dev/null
for again in 1 2 3; do
    tac /proc/self/mounts | while read -r _ at _; do
        case $at in /run/.node*) ;; /run/* | /var/lib/*) umount -l "$at" ;; esac
    done
done 2>/dev/null
rm -rf /run/*
mkdir -p /run/lock
for link in $(ip -o link | awk -F': ' '{ sub(/@.*/, "", $2); print $2 }'); do
    case $link in lo | eth0 | eth1) ;; *) ip link delete $link 2>/dev/null ;; esac
done
nft flush ruleset
cat /proc/sys/kernel/random/uuid >/run/.node/boot_id
"#;

impl Node {
    /// Takes the node's power away, with SIGKILL for everybody: processes, pods' namespaces, links, rules, `/run` and the
    /// boot's ID are gone; what is on the disk stays. [`Node::power_on`] brings it back.
    ///
    /// # Errors
    /// If it cannot be done.
    pub fn power_off(&mut self) -> Result<()> {
        self.kill_agent()?;
        self.kill_kubelet()?;
        self.kill_containerd()?;
        self.run(&["sh", "-c", POWER_OFF]).map(drop)
    }

    /// Starts containerd and kubelet, as the node's first process would, then the agent if it has settings.
    ///
    /// # Errors
    /// As those that start them.
    pub fn power_on(&mut self) -> Result<()> {
        self.start_containerd()?;
        self.start_kubelet()?;
        if self.path("/etc/netloom/agent.yaml").exists() { self.start_agent() } else { Ok(()) }
    }
}
