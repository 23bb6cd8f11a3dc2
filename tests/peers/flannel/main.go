// Flannel runs flannel's own packages as its flanneld does between the start and the rules of iptables: the subnet manager that reads
// Nodes, and one of the backends vxlan and host-gw, which keep the node's devices, routes, neighbours and forwarding entries. flanneld itself
// links every backend, among them some that need cgo and other systems' libraries.
//
// Arguments: the kubeconfig, the file with the network's configuration (net-conf.json) and the link to other nodes. The environment variable NODE_NAME
// is the Node's name, as for flanneld. A line on standard output says the pods' MTU when the node's own part is there. It ends with
// standard input.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/flannel-io/flannel/pkg/backend"
	_ "github.com/flannel-io/flannel/pkg/backend/hostgw"
	_ "github.com/flannel-io/flannel/pkg/backend/vxlan"
	"github.com/flannel-io/flannel/pkg/ipmatch"
	"github.com/flannel-io/flannel/pkg/subnet/kube"
)

func fail(what string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "flannel: %s: %v\n", what, err)
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: NODE_NAME=NAME flannel KUBECONFIG NET-CONF LINK")
		os.Exit(2)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	manager, err := kube.NewSubnetManager(ctx, "", os.Args[1], "flannel.alpha.coreos.com", os.Args[2], false)
	fail("follow the Nodes", err)
	config, err := manager.GetNetworkConfig(ctx)
	fail("read the network's configuration", err)
	stack, err := ipmatch.GetIPFamily(config.EnableIPv4, config.EnableIPv6)
	fail("find the families", err)
	link, err := ipmatch.LookupExtIface(os.Args[3], "", "", stack, ipmatch.PublicIPOpts{})
	fail("find the link", err)
	of, err := backend.NewManager(ctx, manager, link).GetBackend(config.BackendType)
	fail("choose the backend", err)
	var group sync.WaitGroup
	network, err := of.RegisterNetwork(ctx, &group, config)
	fail("make the node's part", err)
	go network.Run(ctx)
	fmt.Println(network.MTU())
	_, err = io.Copy(io.Discard, os.Stdin)
	fail("wait for the end", err)
}
