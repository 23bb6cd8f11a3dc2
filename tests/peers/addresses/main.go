// Addresses hands out addresses with the reference host-local's own code, in one process that has its store open: what its
// work takes without a process for each call. It keeps them in the reference's files, and flushes nothing.
//
// Arguments: the data directory, the network's name and its subnet. Each line of standard input is "COUNT CALLERS": COUNT
// addresses are taken, by so many callers at once; the answer is a line of COUNT times in nanoseconds. They are given back then.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/allocator"
	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/disk"
)

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "addresses:", err)
		os.Exit(1)
	}
}

func main() {
	dir, network := os.Args[1], os.Args[2]
	_, subnet, err := net.ParseCIDR(os.Args[3])
	fail(err)
	set := allocator.RangeSet{{Subnet: types.IPNet(*subnet)}}
	fail(set.Canonicalize())
	lines := bufio.NewScanner(os.Stdin)
	for round := 0; lines.Scan(); round++ {
		var count, callers int
		_, err := fmt.Sscan(lines.Text(), &count, &callers)
		fail(err)
		times, taken := make([]string, count), make([]string, count)
		var group sync.WaitGroup
		for caller := range callers {
			// A lock belongs to a store: each caller has its own.
			store, err := disk.New(network, dir)
			fail(err)
			addresses := allocator.NewIPAllocator(&set, store, 0)
			group.Go(func() {
				for at := caller; at < count; at += callers {
					start := time.Now()
					got, err := addresses.Get(fmt.Sprintf("peer%d-%d", round, at), "eth0", nil)
					times[at] = fmt.Sprint(time.Since(start).Nanoseconds())
					fail(err)
					taken[at] = got.Address.IP.String()
				}
				fail(store.Close())
			})
		}
		group.Wait()
		fmt.Println(strings.Join(times, " "))
		// Not by its own function, which reads every file for each of them.
		for _, address := range taken {
			fail(os.Remove(disk.GetEscapedPath(filepath.Join(dir, network), address)))
		}
	}
	fail(lines.Err())
}
