package main

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// execArgs are the arguments with which kubectl calls wid, and variables for what no flag says: what this call was told,
// wherever that was from. It has to mean the same in another directory and another environment.
func (id *identity) execArgs(provider string, t target) ([]string, []clientcmdapi.ExecEnvVar, error) {
	args, err := id.clusterArgs()
	if err != nil {
		return nil, nil, err
	}
	args = append([]string{"exec-credential", "--no-environment"}, args...)
	for _, s := range id.settings() {
		if !id.changed(s.name) || s.ofOther(provider) || slices.Contains([]string{"kubeconfig", "context", "in-cluster"}, s.name) {
			continue
		}
		values, err := s.values()
		if err != nil {
			return nil, nil, err
		}
		for _, value := range values {
			args = append(args, "--"+s.name+"="+value)
		}
	}
	more, env, err := id.fromVariables(provider, t)
	if err != nil {
		return nil, nil, err
	}
	args = append(args, more...)
	for _, flag := range [][2]string{{"cluster", t.resource}, {"cluster-address", t.address}, {"cluster-name", t.name}} {
		if flag[1] != "" {
			args = append(args, "--"+flag[0]+"="+flag[1])
		}
	}
	return args, env, nil
}

// values are what the flag has to be given, once for each.
func (s *setting) values() ([]string, error) {
	switch p := s.target.(type) {
	case *repeated:
		return *p, nil
	case *[]string:
		return quoted(*p)
	case *string:
		if s.marks&isPath != 0 && *p != "" {
			path, err := lasting("--"+s.name, *p)
			return []string{path}, err
		}
		return []string{*p}, nil
	case *bool:
		return []string{strconv.FormatBool(*p)}, nil
	case *time.Duration:
		return []string{p.String()}, nil
	}
	return nil, fmt.Errorf("the flag %s is a %T", s.name, s.target)
}

// lasting is the path for a program that runs later, somewhere else.
func lasting(what, name string) (string, error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path) //nolint:gosec // the caller names it
	gone := err == nil && !info.Mode().IsRegular() && !info.IsDir()
	if gone || strings.HasPrefix(path, "/dev/") || strings.HasPrefix(path, "/proc/") {
		return "", usagef("%s %.300q is a pipe or the like, which is another one or none when kubectl runs; name a file",
			what, name)
	}
	return path, nil
}

// quoted returns values for a flag that takes them apart at commas, as lines of CSV.
func quoted(list []string) (values []string, err error) {
	for _, value := range list {
		switch {
		case strings.ContainsRune(value, '\r'): // readers of CSV make a line break of it
			return nil, usagef("%.300q cannot be passed on to kubectl: it holds a carriage return", value)
		case value == "":
			values = append(values, `""`)
			continue
		}
		var b strings.Builder
		w := csv.NewWriter(&b)
		if err := w.Write([]string{value}); err != nil {
			return nil, err
		}
		if w.Flush(); w.Error() != nil {
			return nil, w.Error()
		}
		values = append(values, strings.TrimSuffix(b.String(), "\n"))
	}
	return values, nil
}

// fromVariables has kubectl's calls see what the environment says here about the provider. What it does not say here has to
// be empty there, too.
func (id *identity) fromVariables(provider string, t target) (args []string, env []clientcmdapi.ExecEnvVar, err error) {
	for _, v := range shaping {
		value := os.Getenv(v.name)
		switch {
		case v.provider != provider || v.flag != "" && id.changed(v.flag):
			continue
		case v.flag == "region" && t.resource != "":
			continue // the region is that of the cluster
		case value == "" && id.serviceAccount == "" && !id.hasToken():
			continue // wid's own identity depends on the environment where it runs
		case v.flag != "" && value != "":
			args = append(args, "--"+v.flag+"="+value)
			continue
		case v.path && value != "":
			if value, err = lasting(v.name, value); err != nil {
				return nil, nil, err
			}
		}
		env = append(env, clientcmdapi.ExecEnvVar{Name: v.name, Value: value})
	}
	return args, env, nil
}
