//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"syscall"
)

// Names of the second and the third process.
const (
	asInit    = "node-init"
	asManager = "node-manager"
)

type options struct {
	run      *regexp.Regexp
	keep     bool
	possible bool
	args     []string
}

func main() {
	// The kernel ends process 1 with the thread that started it.
	runtime.LockOSThread()
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}

func start() error {
	if len(os.Args) > 1 && os.Args[1] == asInit {
		return runInit(os.Args[2:])
	}
	// The manager gets its folder first.
	manager := len(os.Args) > 2 && os.Args[1] == asManager
	args := os.Args[1:]
	if manager {
		args = os.Args[3:]
	}
	o, err := parse(args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if manager {
		return manage(ctx, os.Args[2], o)
	}
	if err := possible(); err != nil || o.possible {
		return err
	}
	return outside(ctx, o)
}

func parse(args []string) (o options, err error) {
	fs := flag.NewFlagSet("node", flag.ContinueOnError)
	pattern := fs.String("run", "",
		"run only the checks whose name matches this regular expression, and those that install what they need")
	fs.BoolVar(&o.keep, "keep", false, "keep the temporary folder with all logs")
	fs.BoolVar(&o.possible, "possible", false, "only report whether this machine can run the node")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	o.args = args
	o.run, err = regexp.Compile(*pattern)
	return o, err
}

// possible reports what this machine lacks.
func possible() error {
	if os.Geteuid() != 0 {
		return errors.New("a node needs root")
	}
	var missing []string
	for _, p := range []struct{ program, pkg string }{
		{"containerd", "containerd"}, {"ctr", "containerd"}, {"runc", "runc"},
		{cniPlugins + "/ptp", "containernetworking-plugins"}, {"iptables", "iptables"},
		{"nft", "nftables"}, {"conntrack", "conntrack"}, {busybox, "busybox-static"}, {"ip", "iproute2"}, {"mount", "mount"},
	} {
		if _, err := exec.LookPath(p.program); err != nil && (len(missing) == 0 || missing[len(missing)-1] != p.pkg) {
			missing = append(missing, p.pkg)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("a node needs more packages: apt-get install -y --no-install-recommends %s",
			strings.Join(missing, " "))
	}
	return privileged()
}

// privileged tries what a container that merely runs as root may not:
// namespaces, mounts and cgroups.
func privileged() error {
	try := exec.Command("sh", "-ec",
		"mount --make-rprivate /; mount -t tmpfs none /mnt; ip link set lo up; ip link add node0 type bridge; "+
			"for dir in "+cgroupRoot+"/ "+cgroupRoot+
			"/memory/; do [ ! -e $dir/cgroup.procs ] || { mkdir $dir/workloadid-try; rmdir $dir/workloadid-try; }; done") //nolint:noctx // does not wait
	try.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID}
	if out, err := try.CombinedOutput(); err != nil {
		return fmt.Errorf("a node needs namespaces, mounts and cgroups of its own, which this machine refuses: %w: %s",
			err, out)
	}
	return nil
}
