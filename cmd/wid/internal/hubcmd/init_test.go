package hubcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/internal/testing/testca"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
)

// Only clusters that OCM's agent may still serve are named: those that the hub
// accepts, and whose Lease is not ours.
func TestForeignAgents(t *testing.T) {
	lease := func(cluster, name string, holder *string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: holder}}
	}
	c := newHub(t, cluster("ours", true), lease("ours", ocm.LeaseName, new("ours")),
		cluster("theirs", true), lease("theirs", ocm.LeaseName, new(ocm.LeaseName)),
		cluster("another-lease", true), lease("another-lease", "other", new("another-lease")),
		cluster("nobody", true), lease("nobody", ocm.LeaseName, nil), cluster("without", true), cluster("refused", false))
	names, err := foreignAgents(t.Context(), c)
	if want := []string{"another-lease", "nobody", "theirs", "without"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("got %q, %v, want %q", names, err, want)
	}
}

// Where the Leases or the clusters cannot be read, the warning holds for all.
func TestWarnOfAgentsThatCannotBeTold(t *testing.T) {
	for name, refused := range map[string]client.ObjectList{"Leases": &coordinationv1.LeaseList{},
		"clusters": &ocm.ManagedClusterList{}} {
		t.Run(name, func(t *testing.T) {
			c := fakeHub(t, cluster("theirs", true)).
				WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
					opts ...client.ListOption) error {
					if reflect.TypeOf(list) == reflect.TypeOf(refused) {
						return errors.New("refused")
					}
					return c.List(ctx, list, opts...)
				}}).Build()
			var out bytes.Buffer
			cmd := NewHubInit()
			cmd.SetErr(&out)
			(&hubInit{}).warnOfAgents(t.Context(), cmd, c)
			if want := "wid: warning: this hub was one of Open Cluster Management: its agents stop to work without --ocm-agents\n"; out.String() != want {
				t.Errorf("it says %s", &out)
			}
		})
	}
}

func TestRelayForTheVersionOfTheHub(t *testing.T) {
	for version, want := range map[string]manifests.Relay{
		"v1.37.2":             manifests.RelayConstrained,
		"v1.36.0-eks-1a2b3c4": manifests.RelayConstrained,
		"v1.36.1+k3s1":        manifests.RelayConstrained,
		"v1.35.9":             manifests.RelayLegacy,
		"devel":               manifests.RelayLegacy,
	} {
		t.Run(version, func(t *testing.T) {
			hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprintf(w, `{"gitVersion":%q}`, version)
			}))
			defer hub.Close()
			cmd, log := &cobra.Command{}, &bytes.Buffer{}
			cmd.SetErr(log)
			got, err := relayFor(cmd, &rest.Config{Host: hub.URL})
			if err != nil || got != want ||
				(want == manifests.RelayLegacy) != strings.Contains(log.String(), "protect it like an administrator's") {
				t.Errorf("%q, %v, %s", got, err, log)
			}
		})
	}
}

func TestRelayForAHubThatDoesNotAnswer(t *testing.T) {
	hub := httptest.NewServer(http.NotFoundHandler())
	defer hub.Close()
	if got, err := relayFor(&cobra.Command{}, &rest.Config{Host: hub.URL}); err == nil || got != "" {
		t.Errorf("%q, %v", got, err)
	}
}

// A command that joins a cluster has what the flags of the hub program ask of
// an agent, and the address that wid hub init was given.
func TestInvitation(t *testing.T) {
	const remembered, other = "https://first.example:6443", "https://other.example"
	ca := []byte(testca.New(t, "hub").PEM())
	for name, row := range map[string]struct {
		args         []string // of the hub program
		server       string   // the flag
		none         bool     // no hub program
		want, wanted string   // flags and address of the command
	}{
		"no hub program":      {none: true, wanted: "https://hub.example"},
		"certificates":        {args: []string{"--registration-auth=csr"}, wanted: remembered},
		"another address":     {args: []string{"--registration-auth=csr"}, server: other, wanted: other},
		"certificates or AWS": {args: []string{"--registration-auth=csr,aws-irsa"}, wanted: remembered},
		"tokens of add-ons": {args: []string{"--addon-registration-auth=csr,token"}, wanted: remembered,
			want: " --addon-kubeclient-registration-auth token"},
		"AWS alone": {args: []string{"--registration-auth=aws-irsa", "--eks-hub-cluster-arn=" + eksHub},
			want: " --registration-auth aws-irsa --eks-hub-cluster-arn " + eksHub +
				" --eks-managed-cluster-arn MANAGED_CLUSTER_ARN", wanted: remembered},
	} {
		t.Run(name, func(t *testing.T) {
			hub := newHub(t)
			if !row.none {
				d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ocm.HubNamespace, Name: ocm.HubDeployment,
					Annotations: map[string]string{ocm.ServerAnnotation: remembered}}}
				d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "sidecar", Args: []string{"--registration-auth=x"}},
					{Name: ocm.Container, Args: row.args}}
				regtest.Must(t, hub.Create(t.Context(), d))
			}
			cmd := newHubToken()
			var out, warnings bytes.Buffer
			cmd.SetOut(&out)
			cmd.SetErr(&warnings)
			i := &inviting{server: row.server, ttl: time.Hour, cluster: "managed-1", agentImage: "agent:v1"}
			config := &rest.Config{Host: "https://hub.example", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
			regtest.Must(t, i.invite(t.Context(), cmd, &cli.Side{}, hub, config))
			secrets := &corev1.SecretList{}
			regtest.Must(t, hub.List(t.Context(), secrets, client.InNamespace("kube-system")))
			data := secrets.Items[0].Data
			_, line, _ := strings.Cut(strings.TrimSpace(out.String()), "\n\n")
			_, pin, _ := strings.Cut(line, "--ca-cert-hash ")
			pin, _, _ = strings.Cut(pin, " ")
			want := fmt.Sprintf("wid join --hub-token %s.%s --hub-apiserver %s --ca-cert-hash %s%s --cluster-name managed-1 "+
				"--image agent:v1 --context CLUSTER_CONTEXT --apply", data["token-id"], data["token-secret"], row.wanted, pin,
				row.want)
			if line != want || len(pin) != len("sha256:")+64 {
				t.Errorf("got  %s\nwant %s", line, want)
			}
			if got := strings.Contains(warnings.String(), "there is no Deployment"); got != row.none {
				t.Errorf("it warns %s", &warnings)
			}
		})
	}
}

// A hub program keeps its patterns without a question if the flags name them
// again.
func TestHubInitKeepsPatterns(t *testing.T) {
	running := manifests.HubOptions{AuthTypes: []string{"aws-irsa"}, ARN: eksHub,
		AutoApproveARNs: []string{"arn:aws:eks:*:222222222222:cluster/a-*", "arn:aws:eks:*:333333333333:cluster/*"}}
	cmd, out := NewHubInit(), &bytes.Buffer{}
	cmd.SetErr(out)
	if err := (&hubInit{options: running}).checkFlags(cmd, flagsIn(running.Args())); err != nil || out.Len() > 0 {
		t.Errorf("got %v and %s", err, out)
	}
	fewer := running
	fewer.AutoApproveARNs = running.AutoApproveARNs[:1]
	err := (&hubInit{options: fewer, yes: true}).checkFlags(cmd, flagsIn(running.Args()))
	if err != nil || !strings.Contains(out.String(), "becomes --auto-approve-arn=arn:aws:eks:*:222222222222:cluster/a-*\n") {
		t.Errorf("got %v and %s", err, out)
	}
}

// An init without the address keeps that of the last one.
func TestHubInitRemembersTheAddress(t *testing.T) {
	running := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Annotations: map[string]string{ocm.ServerAnnotation: "https://first.example"}}}
	for flag, want := range map[string]string{"": "https://first.example",
		"https://moved.example": "https://moved.example"} {
		h := &hubInit{inviting: inviting{server: flag, ttl: time.Hour}}
		h.Image, h.options.AuthTypes = "x", []string{"csr"}
		if printed, err := h.manifests(NewHubInit(), running); err != nil || !strings.Contains(printed, want) {
			t.Errorf("with %q: %v, want %s in\n%s", flag, err, want, printed)
		}
	}
}
