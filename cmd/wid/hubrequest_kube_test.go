package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/ocm"
)

var guarded = client.MatchingLabels{"test": "guarded"}

// acceptWorld is a hub without its program. Each case has a cluster of its own.
type acceptWorld struct {
	*regtest.World
	key *ecdsa.PrivateKey
	n   int
}

func newAcceptWorld(t *testing.T) *acceptWorld {
	t.Helper()
	w := &acceptWorld{World: regtest.New(t)}
	t.Setenv("KUBECONFIG", w.Hub.Kubeconfig(t))
	var err error
	if w.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Admin.DeleteAllOf(context.WithoutCancel(t.Context()), &ocm.ManagedCluster{}, guarded); err != nil {
			t.Error(err)
		}
	})
	return w
}

// cluster returns the name of a new cluster that waits for acceptance. It claims an ARN unless that is "".
func (w *acceptWorld) cluster(t *testing.T, arn string) string {
	t.Helper()
	cluster := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{GenerateName: "guarded-", Labels: guarded}}
	if arn != "" {
		cluster.Annotations = map[string]string{awsirsa.ARNAnnotation: arn}
	}
	if err := w.Admin.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	return cluster.Name
}

// ask creates a request as a user, and returns its name.
func (w *acceptWorld) ask(t *testing.T, cluster, user string, groups ...string) string {
	t.Helper()
	config := rest.CopyConfig(w.Hub.Config())
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	w.n++
	request := requestOfSize(t, w.key, cluster, fmt.Sprintf("%s-%d", cluster, w.n), 1000)
	if err := regtest.NewClient(t, config).Create(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	return request.Name
}

func (w *acceptWorld) isApproved(t *testing.T, request string) bool {
	t.Helper()
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := w.Admin.Get(t.Context(), client.ObjectKey{Name: request}, csr); err != nil {
		t.Fatal(err)
	}
	return len(csr.Status.Conditions) > 0
}

func TestHubAcceptApprovesRequestsOfBootstrapUsers(t *testing.T) {
	w := newAcceptWorld(t)
	const masters = "system:masters" // may create requests
	node := func(t *testing.T, cluster string) string {
		return w.ask(t, cluster, "system:node:n1", "system:nodes", masters)
	}
	token := func(t *testing.T, cluster string) string {
		return w.ask(t, cluster, "system:bootstrap:abcdef", registration.BootstrapGroup)
	}
	account := func(t *testing.T, cluster string) string {
		return w.ask(t, cluster, regtest.BootstrapUser, "system:serviceaccounts", "system:serviceaccounts:open-cluster-management")
	}
	agent := func(t *testing.T, cluster string) string {
		return w.ask(t, cluster, registration.AgentUser(cluster, "agent1"), registration.ClusterGroup(cluster), masters)
	}
	type asks = []func(*testing.T, string) string
	for name, c := range map[string]struct {
		requests asks
		named    bool // the first request, by the flag
		code     int
		want     string
		approved bool // the first request
	}{
		"a bootstrap token":                 {asks{token}, false, 0, "approved", true},
		"the bootstrap ServiceAccount":      {asks{account}, false, 0, "approved", true},
		"a node":                            {asks{node}, false, cli.ExitDenied, `of user "system:node:n1"`, false},
		"a node, named":                     {asks{node}, true, 0, "approved", true},
		"the agent itself, which renews":    {asks{agent}, false, 0, "accepted", false},
		"two bootstrap tokens":              {asks{token, token}, false, cli.ExitDenied, "2 requests", false},
		"two bootstrap tokens, one named":   {asks{token, token}, true, 0, "approved", true},
		"a bootstrap token and a node":      {asks{token, node}, false, cli.ExitDenied, "2 requests", false},
		"a bootstrap token, named, another": {asks{token, node}, true, 0, "approved", true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := w.cluster(t, "")
			var names []string
			for _, ask := range c.requests {
				names = append(names, ask(t, cluster))
			}
			args := []string{"hub", "accept", "--clusters=" + cluster}
			if c.named {
				args = append(args, "--approve-request="+names[0])
			}
			out, err := wid(t, "", args...)
			if err != nil {
				out += err.Error()
			}
			if (err != nil) != (c.code != 0) || err != nil && cli.ExitCode(t.Context(), err) != c.code || !strings.Contains(out, c.want) {
				t.Errorf("it says %s", out)
			}
			if err != nil && !strings.Contains(out, "--approve-request") {
				t.Errorf("%s names no flag", out)
			}
			if got := w.Cluster(cluster).Spec.HubAcceptsClient; got != (c.code == 0) {
				t.Errorf("accepted %t", got)
			}
			for i, request := range names {
				if got := w.isApproved(t, request); got != (c.approved && i == 0) {
					t.Errorf("request %d of %d is approved: %t", i+1, len(names), got)
				}
			}
		})
	}
	for arn, name := range map[string]string{"": "a request that does not wait is named", eksManaged: "a request of a cluster without certificates is named"} {
		t.Run(name, func(t *testing.T) {
			cluster := w.cluster(t, arn)
			request := token(t, cluster)
			_, err := wid(t, "", "hub", "accept", "--clusters="+cluster, "--approve-request=mistyped")
			if err == nil || cli.ExitCode(t.Context(), err) != cli.ExitMisconfigured || !strings.Contains(err.Error(), `"mistyped"`) || w.isApproved(t, request) || w.Cluster(cluster).Spec.HubAcceptsClient {
				t.Errorf("it says %v", err)
			}
		})
	}
}

func TestHubAcceptComparesTheClaim(t *testing.T) {
	w := newAcceptWorld(t)
	for name, c := range map[string]struct{ claims, flag, want string }{
		"the same":                  {eksManaged, eksManaged, ""},
		"another ARN":               {eksAttacker, eksManaged, `claims "` + eksAttacker + `" instead of "` + eksManaged},
		"none, as certificates":     {"", "", ""},
		"none instead of an ARN":    {"", eksManaged, `claims nothing instead of "arn:`},
		"an ARN instead of none":    {eksAttacker, "", `claims "` + eksAttacker},
		"an ARN that begins alike":  {eksManaged + "2", eksManaged, `claims "` + eksManaged + `2" instead of`},
		"an ARN in other case only": {eksManaged, strings.ToUpper(eksManaged), "instead of"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := w.cluster(t, c.claims)
			_, err := wid(t, "", "hub", "accept", "--clusters="+cluster, "--claim="+c.flag)
			if (err != nil) != (c.want != "") || err != nil && (cli.ExitCode(t.Context(), err) != cli.ExitDenied || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("it says %v", err)
			}
			if got := w.Cluster(cluster).Spec.HubAcceptsClient; got != (c.want == "") {
				t.Errorf("accepted %t", got)
			}
		})
	}
}
