package hubcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
)

// deciderOf is wid hub accept with flags, on a hub in memory. It writes both
// its outputs to said.
func deciderOf(t *testing.T, hub client.Client, flags ...string) (d *deciding, said *bytes.Buffer) {
	t.Helper()
	cmd, said := newHubAccept(), &bytes.Buffer{}
	regtest.Must(t, cmd.ParseFlags(flags))
	cmd.SetOut(said)
	cmd.SetErr(said)
	d = &deciding{cmd: cmd, hub: hub, accepts: true}
	var err1, err2, err3 error
	d.claim, err1 = cmd.Flags().GetString("claim")
	d.approves, err2 = cmd.Flags().GetString("approve-request")
	d.wait, err3 = cmd.Flags().GetBool("wait")
	regtest.Must(t, errors.Join(err1, err2, err3))
	return d, said
}

// waiting returns a cluster that waits for acceptance, and what the hub has
// published of its claim.
func waiting(name string, claim registration.Claim) []client.Object {
	c := cluster(name, false)
	c.Annotations = map[string]string{"example.com/serial": "4711"}
	return []client.Object{c, published(c, claim)}
}

func get(t *testing.T, hub client.Client, name string) *ocm.ManagedCluster {
	t.Helper()
	c := &ocm.ManagedCluster{}
	regtest.Must(t, hub.Get(t.Context(), client.ObjectKey{Name: name}, c))
	return c
}

// expectFailure expects a code and a text of an error.
func expectFailure(t *testing.T, err error, code int, want string) {
	t.Helper()
	if err == nil || cli.ExitCode(t.Context(), err) != code || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want code %d and %q", err, code, want)
	}
}

func TestHubAcceptComparesTheClaim(t *testing.T) {
	for name, row := range map[string]struct{ claims, flag, want string }{
		"the same":                  {eksManaged, eksManaged, ""},
		"another ARN":               {eksAttacker, eksManaged, `claims "` + eksAttacker + `" instead of "` + eksManaged},
		"none, as certificates":     {"", cli.None, ""},
		"none instead of an ARN":    {"", eksManaged, `claims nothing instead of "arn:`},
		"an ARN instead of none":    {eksAttacker, cli.None, `claims "` + eksAttacker},
		"an ARN that begins alike":  {eksManaged + "2", eksManaged, `claims "` + eksManaged + `2" instead of`},
		"an ARN in other case only": {eksManaged, strings.ToUpper(eksManaged), "instead of"},
	} {
		t.Run(name, func(t *testing.T) {
			hub := newHub(t, waiting("shop", registration.Claim{AuthType: "example", Value: row.claims})...)
			d, _ := deciderOf(t, hub, "--claim="+row.flag)
			if err := d.accept(t.Context(), get(t, hub, "shop")); row.want != "" {
				expectFailure(t, err, cli.ExitDenied, row.want)
			} else if err != nil {
				t.Error(err)
			}
			if got := get(t, hub, "shop").Spec.HubAcceptsClient; got != (row.want == "") {
				t.Errorf("accepted is %t", got)
			}
		})
	}
}

// Only the hub's drivers can read a claim, also those that this module does not
// know.
func TestHubAcceptShowsTheClaimThatTheHubPublished(t *testing.T) {
	for claim, want := range map[string]string{"serial:4711": `auth type "example", claim "serial:4711"`,
		"": `auth type "example"`} {
		t.Run(claim, func(t *testing.T) {
			hub := newHub(t, waiting("shop", registration.Claim{AuthType: "example", Value: claim})...)
			d, said := deciderOf(t, hub)
			if err := d.accept(t.Context(), get(t, hub, "shop")); err != nil || !strings.Contains(said.String(), want) {
				t.Errorf("accept says %q, %v, want %q", said, err, want)
			}
		})
	}
}

// The administrator accepts the cluster as it was read, not as it has become.
func TestHubAcceptRefusesAClusterThatHasChanged(t *testing.T) {
	hub := newHub(t, waiting("shop", registration.Claim{AuthType: "example", Value: "serial:4711"})...)
	shop := get(t, hub, "shop")
	changed := shop.DeepCopy()
	changed.Annotations["example.com/serial"] = "4712"
	regtest.Must(t, hub.Update(t.Context(), changed))
	d, _ := deciderOf(t, hub)
	if err := d.set(t.Context(), shop, true); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	if get(t, hub, "shop").Spec.HubAcceptsClient {
		t.Error("the changed cluster is accepted")
	}
}

// A bootstrap user changes the claim while no hub program runs. The published
// one is of before.
func TestHubAcceptRefusesAClaimThatTheHubHasNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := newHub(t, waiting("shop", registration.Claim{AuthType: "example", Value: "serial:4711"})...)
		shop := get(t, hub, "shop")
		shop.Annotations["example.com/serial"] = "666"
		regtest.Must(t, hub.Update(t.Context(), shop))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		d, _ := deciderOf(t, hub)
		err := d.accept(ctx, get(t, hub, "shop"))
		if err == nil || !strings.Contains(err.Error(), "for the hub program to look at cluster") ||
			get(t, hub, "shop").Spec.HubAcceptsClient {
			t.Errorf("accept says %v, and the cluster is %+v", err, get(t, hub, "shop"))
		}
		all, err := clustersOf(t.Context(), hub)
		if err != nil || all[0].AuthType+all[0].Claim != "" || accepted(&all[0]) != "false (the hub has not acted yet)" {
			t.Errorf("status shows %+v, %v", all, err)
		}
	})
}

func TestHubAcceptShowsTheRefusalOfTheHub(t *testing.T) {
	refused := denied(time.Hour)
	refused.Reason, refused.Message = "UnknownDriver", "it has the annotations of no auth type"
	hub := newHub(t, cluster("shop", false, refused))
	d, _ := deciderOf(t, hub)
	expectFailure(t, d.accept(t.Context(), get(t, hub, "shop")), cli.ExitMisconfigured, refused.Message)
	if get(t, hub, "shop").Spec.HubAcceptsClient {
		t.Error("accept has accepted it")
	}
}

// An API server without the admission policies answers Forbidden, and one with
// them Invalid.
func TestHubAcceptAndDenyNameTheRights(t *testing.T) {
	for name, answer := range map[string]error{
		"no right to patch": apierrors.NewForbidden(ocm.GroupVersion.WithResource("managedclusters").GroupResource(),
			"shop", errors.New("no")),
		"the policy": apierrors.NewInvalid(ocm.GroupVersion.WithKind("ManagedCluster").GroupKind(), "shop", nil),
	} {
		for command, decide := range map[string]func(*deciding, context.Context, *ocm.ManagedCluster) error{
			"accept": (*deciding).accept, "deny": (*deciding).deny} {
			t.Run(command+", "+name, func(t *testing.T) {
				shop := cluster("shop", command == "deny")
				role := published(shop, registration.Claim{AuthType: registration.AuthTypeCSR})
				hub := interceptor.NewClient(newHub(t, shop, role), interceptor.Funcs{Patch: func(context.Context,
					client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
					return answer
				}})
				d, _ := deciderOf(t, hub)
				err := decide(d, t.Context(), get(t, hub, "shop"))
				expectFailure(t, err, cli.ExitDenied, "needs the rights to patch managedclusters")
				expectFailure(t, err, cli.ExitDenied, "managedclusters/accept in register.open-cluster-management.io")
			})
		}
	}
}

// The command that a refusal prints approves the request that the reader picks
// from its lines, and no other.
func TestHubAcceptRunsTheCommandThatItPrints(t *testing.T) {
	hub := newHub(t, waiting("shop", registration.Claim{AuthType: registration.AuthTypeCSR})...)
	old := regtest.Ask(t, hub, asBootstrapUser(hub), "shop", "stable")
	current := regtest.Ask(t, hub, asBootstrapUser(hub), "shop", "stable")
	decided := func() (names []string) {
		for _, r := range regtest.RequestsOf(t, hub, "shop") {
			if len(r.Status.Conditions) > 0 {
				names = append(names, r.Name)
			}
		}
		return names
	}
	d, _ := deciderOf(t, hub)
	err := d.accept(t.Context(), get(t, hub, "shop"))
	if err == nil || len(decided()) > 0 || get(t, hub, "shop").Spec.HubAcceptsClient {
		t.Fatalf("accept picks one of two requests: %v, approved are %q", err, decided())
	}
	for _, r := range regtest.RequestsOf(t, hub, "shop") {
		request, parseErr := csr.Parse(&r)
		regtest.Must(t, parseErr)
		want := fmt.Sprintf("request %q: agent \"stable\" with key %.8s", r.Name, request.Key)
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it says %v, want %q", err, want)
		}
	}
	_, command, _ := strings.Cut(err.Error(), "run wid hub accept ")
	command, _, _ = strings.Cut(command, "REQUEST")
	d, said := deciderOf(t, hub, append(strings.Fields(command), current)...)
	if err := d.accept(t.Context(), get(t, hub, "shop")); err != nil ||
		!slices.Equal(decided(), []string{current}) || !get(t, hub, "shop").Spec.HubAcceptsClient {
		t.Errorf("%q says %s, %v, and approves %q of %q and %q", command, said, err, decided(), old, current)
	}
}

// Bootstrap users create many objects, each as large as etcd takes, and an
// answer is bounded.
func TestHubCommandsListInPages(t *testing.T) {
	objects := append(waiting("shop", registration.Claim{AuthType: registration.AuthTypeCSR}), cluster("other", false))
	fake := newHub(t, objects...)
	regtest.Ask(t, fake, asBootstrapUser(fake), "shop", "agent1")
	listed := map[string]bool{}
	hub := interceptor.NewClient(fake, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch,
		list client.ObjectList, opts ...client.ListOption) error {
		o := (&client.ListOptions{}).ApplyOptions(opts)
		if listed[fmt.Sprintf("%T", list)] = true; o.Limit < 1 || o.Limit > 20 {
			t.Errorf("%T is listed with the limit %d, want at most 20", list, o.Limit)
		}
		return c.List(ctx, list, opts...)
	}})
	_, statusErr := clustersOf(t.Context(), hub)
	_, agentsErr := foreignAgents(t.Context(), hub)
	_, bindingErr := ocmBinding(t.Context(), hub)
	d, _ := deciderOf(t, hub)
	acceptErr := d.accept(t.Context(), get(t, fake, "shop"))
	if err := errors.Join(statusErr, agentsErr, bindingErr, acceptErr); err != nil || len(listed) != 6 {
		t.Errorf("%v, listed were %v, want 6 types", err, listed)
	}
}
