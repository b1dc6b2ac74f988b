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

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

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
