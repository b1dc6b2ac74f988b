package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/irsaname"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

// slowAWS reports each call, and revokes only when it is told to.
type slowAWS struct {
	granted          chan string
	revoking, revoke chan struct{}
}

func (*slowAWS) Name() string { return registration.AuthTypeAWS }

func (*slowAWS) Claim(cluster *ocm.ManagedCluster) (string, bool, error) {
	return irsaname.Claim(cluster)
}

func (*slowAWS) Approves(context.Context, *ocm.ManagedCluster, string) (bool, error) {
	return false, nil
}

func (s *slowAWS) Grant(_ context.Context, _, claim string) (time.Duration, error) {
	s.granted <- claim
	return 0, nil
}

func (s *slowAWS) Revoke(ctx context.Context, _, _ string) error {
	s.revoking <- struct{}{}
	select {
	case <-s.revoke:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A bootstrap credential changes the claim of a cluster that is being denied. The administrator sees what the hub then grants.
func TestHubAcceptShowsWhatABootstrapUserMadeOfADeniedCluster(t *testing.T) {
	w := regtest.New(t)
	t.Setenv("KUBECONFIG", w.Hub.Kubeconfig(t))
	d := &slowAWS{granted: make(chan string, 10), revoking: make(chan struct{}, 10), revoke: make(chan struct{})}
	w.RunHub(func(ctrl.Manager) (hub.Options, error) {
		return hub.Options{Drivers: []registration.HubDriver{d}}, nil
	})
	bootstrap := regtest.NewClient(t, regtest.WithToken(w.Hub.Config(), w.Token(w.Admin, "open-cluster-management", "agent-registration-bootstrap")))
	cluster := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{awsirsa.ARNAnnotation: eksManaged}}}
	if err := bootstrap.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	if out := must(t, "hub", "accept", "--clusters=shop"); !strings.Contains(out, eksManaged) || <-d.granted != eksManaged {
		t.Fatalf("accept says %s", out)
	}
	regtest.Eventually(t, "it is bound", func() bool { return len(w.RBAC("shop")) == 4 })
	must(t, "hub", "deny", "--clusters=shop")
	<-d.revoking
	if err := regtest.Patch(t.Context(), bootstrap, "shop", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, awsirsa.ARNAnnotation, eksAttacker)); err != nil {
		t.Fatal(err)
	}
	out, err := wid(t, "", "hub", "accept", "--clusters=shop")
	if err == nil || cli.ExitCode(t.Context(), err) != cli.ExitUnavailable || !strings.Contains(err.Error(), "still taking away") || w.Cluster("shop").Spec.HubAcceptsClient {
		t.Errorf("accept says %s, %v", out, err)
	}
	close(d.revoke)
	regtest.Eventually(t, "accept shows the claim of now", func() bool {
		out, err = wid(t, "", "hub", "accept", "--clusters=shop")
		return err == nil
	})
	if granted := <-d.granted; granted != eksAttacker || !strings.Contains(out, eksAttacker) || strings.Contains(out, eksManaged) {
		t.Errorf("accept says %s, and the hub grants %q", out, granted)
	}
}
