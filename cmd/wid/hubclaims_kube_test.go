package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

const ownAnnotation = "example.com/serial"

// ownDriver is a hub driver that this module does not know.
type ownDriver struct{}

func (ownDriver) Name() string { return "example" }
func (ownDriver) Claim(c *ocm.ManagedCluster) (string, bool, error) {
	serial, ok := c.Annotations[ownAnnotation]
	return "serial:" + serial, ok, nil
}

func (ownDriver) Approves(context.Context, *ocm.ManagedCluster, string) (bool, error) {
	return false, nil
}
func (ownDriver) Grant(context.Context, string, string) (time.Duration, error) { return 0, nil }
func (ownDriver) Revoke(context.Context, string, string) error                 { return nil }

// awsAlone is the driver of wid-hub --registration-auth aws-irsa. No call of
// AWS succeeds.
func awsAlone(t *testing.T) registration.HubDriver {
	t.Helper()
	config := aws.Config{Region: "eu-central-1", BaseEndpoint: aws.String("http://127.0.0.1:1")}
	d, err := awsirsa.NewHubDriver(awsirsa.HubDriverOptions{Hub: eksHub,
		IAM: iam.NewFromConfig(config), EKS: eks.NewFromConfig(config)})
	regtest.Must(t, err)
	return d
}

func annotatedWith(annotations map[string]string) func(*ocm.ManagedCluster) {
	return func(c *ocm.ManagedCluster) { c.Annotations = annotations }
}

// The commands show what the drivers of the hub read, and the auth type that
// the hub grants.
func TestCommandsShowTheClaimThatTheHubGrants(t *testing.T) {
	w := newAcceptEnvironment(t)
	for name, row := range map[string]struct {
		driver      registration.HubDriver
		byDefault   string
		annotations map[string]string
		want        string // in accept and the doctor
		claim       string
	}{
		"aws-irsa alone": {awsAlone(t), "", map[string]string{awsirsa.ARNAnnotation: eksManaged},
			`auth type "aws-irsa", claim "` + eksManaged + `"`, eksManaged},
		"a driver of one's own": {ownDriver{}, "",
			map[string]string{ownAnnotation: "4711", awsirsa.ARNAnnotation: eksManaged},
			`auth type "example", claim "serial:4711"`, "serial:4711"},
		"a default driver of one's own": {ownDriver{}, "example", nil, `auth type "example"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			stop := w.RunHub(func(ctrl.Manager) (hub.Options, error) {
				return hub.Options{Drivers: []registration.HubDriver{row.driver}, Default: row.byDefault}, nil
			})
			defer stop()
			cluster := w.newCluster(t, annotatedWith(row.annotations)).Name
			show := func(what string) {
				t.Helper()
				var got []string
				regtest.Eventually(t, "status shows what "+what, func() bool {
					all := statusOf(t, "--clusters="+cluster)
					got = []string{all[0].AuthType, all[0].Claim}
					return got[0] == row.driver.Name() && got[1] == row.claim
				})
				report, _ := wid(t, "", "doctor", "registration", "--verbose", "--cluster-name="+cluster,
					"--hub-kubeconfig="+os.Getenv("KUBECONFIG"))
				if text := strings.Join(strings.Fields(report), " "); !strings.Contains(text, row.want) ||
					!strings.Contains(text, fmt.Sprintf("%q, default %q", row.driver.Name(), row.byDefault)) {
					t.Errorf("the doctor does not show %s, or the hub's auth types:\n%s", row.want, report)
				}
			}
			show("the cluster claims")
			if out := must(t, "hub", "accept", "--clusters="+cluster); !strings.Contains(out, row.want) {
				t.Errorf("accept says %s", out)
			}
			show("the hub has granted")
			must(t, "hub", "deny", "--clusters="+cluster)
		})
	}
}

// A hub with aws-irsa alone grants no certificates.
func TestCommandsShowTheRefusalOfTheHub(t *testing.T) {
	w := newAcceptEnvironment(t)
	w.RunHub(func(ctrl.Manager) (hub.Options, error) {
		return hub.Options{Drivers: []registration.HubDriver{awsAlone(t)}}, nil
	})
	cluster := w.newCluster(t).Name
	regtest.Eventually(t, "the hub refuses the cluster", func() bool {
		return w.Reason(cluster, ocm.ConditionHubAccepted) == "False/UnknownDriver"
	})
	out := must(t, "hub", "status", "--clusters="+cluster)
	if strings.Contains(out, "csr") || !strings.Contains(out, "false (UnknownDriver)") {
		t.Errorf("status shows %s", out)
	}
	fails(t, cli.ExitMisconfigured, "has the annotations of no auth type", "hub", "accept", "--clusters="+cluster)
	if w.Cluster(cluster).Spec.HubAcceptsClient {
		t.Error("accept has accepted it")
	}
}

// A bootstrap user changes the claim while no hub program runs. Nobody has read
// the new one.
func TestHubAcceptRefusesAClaimThatTheHubHasNotRead(t *testing.T) {
	w := newAcceptEnvironment(t)
	stop := w.RunHub(func(ctrl.Manager) (hub.Options, error) {
		return hub.Options{Drivers: []registration.HubDriver{ownDriver{}}}, nil
	})
	cluster := w.newCluster(t, annotatedWith(map[string]string{ownAnnotation: "4711"})).Name
	regtest.Eventually(t, "status shows the claim", func() bool {
		return statusOf(t, "--clusters="+cluster)[0].Claim == "serial:4711"
	})
	stop()
	edit := `{"metadata":{"annotations":{"` + ownAnnotation + `":"666"}}}`
	regtest.Must(t, regtest.Patch(t.Context(), w.Admin, cluster, edit))
	fails(t, cli.ExitUnavailable, "for the hub program to look at cluster",
		"hub", "accept", "--clusters="+cluster, "--timeout=1s")
	out := must(t, "hub", "status", "--clusters="+cluster)
	if strings.Contains(out, "4711") || !strings.Contains(out, "false (the hub has not acted yet)") {
		t.Errorf("status shows %s", out)
	}
	if w.Cluster(cluster).Spec.HubAcceptsClient {
		t.Error("accept has accepted it")
	}
}
