//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cgroupPrefix starts the names of the node's cgroups. The process ID of the
// first process follows.
const cgroupPrefix = "workloadid-node-"

// cgroupName returns the name of the cgroup of the node that the process
// started.
func cgroupName(pid int) string { return cgroupPrefix + strconv.Itoa(pid) }

// outside builds the images, runs the node and removes what it leaves.
func outside(ctx context.Context, o options) (err error) {
	if err := sweep(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", cgroupName(os.Getpid())+"-")
	if err != nil {
		return err
	}
	before := mounts()
	began := time.Now()
	if err := build(ctx, dir); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	fmt.Printf("built %6.1fs\n", time.Since(began).Seconds())
	err = inNamespaces(ctx, dir, o)
	if err != nil || o.keep {
		fmt.Println("logs:", filepath.Join(dir, "logs"))
	}
	return errors.Join(err, cleanUp(dir, err != nil || o.keep), leftovers(before))
}

// inNamespaces runs process 1 until it ends.
func inNamespaces(ctx context.Context, dir string, o options) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{asInit, dir}, o.args...)...) //nolint:gosec // this program
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), cgroupVariable+"="+cgroupName(os.Getpid()))
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID |
			syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Pdeathsig: syscall.SIGKILL,
	}
	// The manager still prints what failed. A second signal, or ten seconds,
	// end it at once.
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, 10*time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the node failed: %w", err)
	}
	return nil
}

// cleanUp removes cgroups and files. The logs stay after a failure.
func cleanUp(dir string, keepLogs bool) error {
	err := removeCgroups(cgroupName(os.Getpid()))
	if !keepLogs {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return errors.Join(err, keepOnlyLogs(dir))
}

func keepOnlyLogs(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != "logs" {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// sweep removes the cgroups and files of runs that were killed.
func sweep() error {
	var err error
	for _, dir := range cgroups(cgroupPrefix + "*") {
		if name := filepath.Base(dir); isOver(name) {
			err = errors.Join(err, removeCgroups(name))
		}
	}
	folders, globErr := filepath.Glob(filepath.Join(os.TempDir(), cgroupPrefix+"*"))
	for _, dir := range folders {
		if isOver(filepath.Base(dir)) {
			err = errors.Join(err, keepOnlyLogs(dir))
		}
	}
	return errors.Join(err, globErr)
}

// isOver reports whether the process in a name has ended.
func isOver(name string) bool {
	pid, _, _ := strings.Cut(strings.TrimPrefix(name, cgroupPrefix), "-")
	_, err := os.Stat("/proc/" + pid)
	return errors.Is(err, fs.ErrNotExist)
}

// cgroups returns the folders of cgroups with a name, in all hierarchies.
func cgroups(name string) []string {
	v1, _ := filepath.Glob(filepath.Join(cgroupRoot, "*", name)) // the pattern is right
	v2, _ := filepath.Glob(filepath.Join(cgroupRoot, name))
	return append(v1, v2...)
}

// removeCgroups waits until the kernel has ended the processes in them.
func removeCgroups(name string) error {
	var err error
	for range 100 {
		err = nil
		for _, dir := range cgroups(name) {
			err = errors.Join(err, removeTree(dir))
		}
		if err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("remove the node's cgroups: %w", err)
}

// removeTree removes the folders of a cgroup from the leaves on. Their files
// cannot be removed.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, removeTree(filepath.Join(dir, e.Name())))
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, syscall.Rmdir(dir))
}

// mounts returns the mounts of this process.
func mounts() string {
	content, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// leftovers reports mounts, cgroups and processes that outlived the node.
func leftovers(mountsBefore string) error {
	var err error
	if now := mounts(); now != mountsBefore {
		err = fmt.Errorf("the node left mounts behind:\n%s", now)
	}
	if left := cgroups(cgroupName(os.Getpid())); len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("the node left cgroups behind: %q", left))
	}
	environments, globErr := filepath.Glob("/proc/[0-9]*/environ")
	err = errors.Join(err, globErr)
	for _, file := range environments {
		if content, readErr := os.ReadFile(file); readErr == nil &&
			strings.Contains(string(content), cgroupVariable+"="+cgroupName(os.Getpid())+"\x00") {
			err = errors.Join(err, fmt.Errorf("the node left a process behind: %s", filepath.Dir(file)))
		}
	}
	return err
}
