package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/controlplane"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/manifests"
)

func TestMain(m *testing.M) {
	logTo(io.Discard)
	os.Exit(kubetest.Main(m).Run())
}

func TestFlags(t *testing.T) {
	o,
		err := parseFlags([]string{"--cluster-name", "c1", "--registration-auth", "csr", "--namespace", "n",
		"--bootstrap-secret", "s",
		"--leader-elect", "--metrics-bind-address", "0", "--health-probe-bind-address", ":1",
		"--addon-kubeclient-registration-auth", "token", "--addon-token-expiration-seconds", "3600",
		"--cluster-status=false"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if o.cluster != "c1" || o.driver.Name() != "csr" || o.namespace != "n" || o.bootstrapSecret != "s" || !o.leaderElect ||
		o.metricsAddress != "0" || o.probeAddress != ":1" || o.addOnAuth != "token" || o.addOnTokenSeconds != 3600 ||
		o.clusterStatus {
		t.Errorf("flags give %+v", o)
	}
	o,
		err = parseFlags([]string{"--cluster-name", "c1", "--registration-auth", "aws-irsa", "--eks-hub-cluster-arn", hubARN,
		"--eks-managed-cluster-arn", "arn:aws:eks:eu-west-1:222222222222:cluster/shop"}, io.Discard)
	if err != nil || o.driver.Name() != "aws-irsa" {
		t.Errorf("aws-irsa: %+v, %v", o, err)
	}
	o, err = parseFlags([]string{"--cluster-name", "c1"}, io.Discard)
	if err != nil || o.driver.Name() != "csr" || o.namespace != agent.DefaultNamespace ||
		o.bootstrapSecret != agent.DefaultBootstrapSecret || o.leaderElect || o.addOnAuth != "csr" || !o.clusterStatus {
		t.Errorf("defaults: %+v, %v", o, err)
	}
}

const hubARN = "arn:aws:eks:eu-central-1:111111111111:cluster/hub"

func TestFlagsThatCannotWork(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no cluster name": {nil, "--cluster-name is missing"},
		"name that is no label": {[]string{"--cluster-name", "a.b"},
			`--cluster-name: the cluster name "a.b" is not a DNS label`},
		"unknown auth type": {[]string{"--cluster-name", "c1", "--registration-auth", "magic"},
			`--registration-auth: unknown auth type "magic": use one of aws-irsa, csr`},
		"token for the cluster": {[]string{"--cluster-name", "c1", "--registration-auth", "token"},
			"--registration-auth: token registers add-ons only: use --addon-kubeclient-registration-auth=token"},
		"unknown add-on driver": {[]string{"--cluster-name", "c1", "--addon-kubeclient-registration-auth", "magic"},
			`--addon-kubeclient-registration-auth: unknown auth type "magic": use one of csr, token`},
		"token for 5 seconds": {[]string{"--cluster-name", "c1", "--addon-token-expiration-seconds", "5"},
			"--addon-token-expiration-seconds: token: ExpirationSeconds is 5: use at least 600"},
		"token for -1 seconds": {[]string{"--cluster-name", "c1", "--addon-token-expiration-seconds", "-1"},
			"use at least 600"},
		"ARN without aws-irsa": {[]string{"--cluster-name", "c1", "--eks-hub-cluster-arn", hubARN},
			"--registration-auth=aws-irsa"},
		"no ARN of the hub": {[]string{"--cluster-name", "c1", "--registration-auth", "aws-irsa"},
			"--eks-hub-cluster-arn is missing"},
		"no ARN of the cluster": {[]string{"--cluster-name", "c1", "--registration-auth", "aws-irsa", "--eks-hub-cluster-arn",
			hubARN}, "--eks-managed-cluster-arn is missing"},
		"ARN that is none": {[]string{"--cluster-name", "c1", "--registration-auth", "aws-irsa", "--eks-hub-cluster-arn",
			hubARN, "--eks-managed-cluster-arn", "foo"}, `"foo" is not the ARN`},
		"argument":           {[]string{"c1"}, `unexpected argument "c1"`},
		"missing kubeconfig": {[]string{"--cluster-name", "c1"}, "set KUBECONFIG"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", "/nonexistent")
			if err := run(t.Context(), test.args, io.Discard); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// What the API server answers decides on credentials, so no other host may
// answer for it.
func TestAgentNeedsAVerifiedAPIServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(`apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: x}}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, []string{"--cluster-name", "c1"}, io.Discard); err == nil ||
		!strings.Contains(err.Error(), "insecure-skip-tls-verify") {
		t.Error(err)
	}
}

// The program runs with the RBAC of manifests.AgentRBAC(), says in an Event
// what it lacks, and gives up its Lease at the end.
func TestAgentOnARealAPIServer(t *testing.T) {
	cluster := kubetest.Start(t)
	c := cluster.Client()
	kubetest.Apply(t, c, manifests.AgentRBAC())
	t.Setenv("KUBECONFIG", cluster.AccountKubeconfig(t, agent.DefaultNamespace, "registration-agent"))
	metrics, probes := freeAddress(t), freeAddress(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"--cluster-name", "cluster1", "--leader-elect", "--metrics-bind-address", metrics,
			"--health-probe-bind-address", probes}, io.Discard)
	}()
	lease := &coordinationv1.Lease{}
	holder := func() string {
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: agent.DefaultNamespace, Name: name}, lease); err != nil ||
			lease.Spec.HolderIdentity == nil {
			return ""
		}
		return *lease.Spec.HolderIdentity
	}
	kubetest.Eventually(t, "an Event about the missing bootstrap Secret", func() bool {
		return hasEvent(t, c, "BootstrapCredentialRefused")
	})
	kubetest.Eventually(t, "an Event of the leader", func() bool { return hasEvent(t, c, "LeaderElection") })
	if holder() == "" {
		t.Error("the Lease has no holder")
	}
	kubetest.Eventually(t, "reconciler of add-ons", func() bool {
		return strings.Contains(get(t, "http://"+metrics+"/metrics"),
			`controller_runtime_max_concurrent_reconciles{controller="registration-addons"} 8`)
	})
	for url, want := range map[string]string{probes + "/healthz": "ok", probes + "/readyz": "ok",
		metrics + "/metrics": "registration_agent_"} {
		if got := get(t, "http://"+url); !strings.Contains(got, want) {
			t.Errorf("%s has no %s", url, want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if holder() != "" {
		t.Error("the Lease is still held")
	}
}

// hasEvent finds Events of both APIs.
func hasEvent(t *testing.T, c client.Client, reason string) bool {
	t.Helper()
	var list eventsv1.EventList
	if err := c.List(t.Context(), &list, client.InNamespace(agent.DefaultNamespace)); err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Reason == reason {
			return true
		}
	}
	return false
}

func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := controlplane.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", port)
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
