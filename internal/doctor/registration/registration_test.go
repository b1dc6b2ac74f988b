package registration_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/reporttest"
	examine "github.com/workloadid/workloadid/internal/doctor/registration"
)

func TestHealthy(t *testing.T) {
	for name, change := range map[string]func(w *environment){
		"with certificates":                        func(*environment) {},
		"with IAM roles":                           func(w *environment) { w.irsa() },
		"with the agent of wid join":               func(w *environment) { w.ownAgent(); w.items() },
		"with IAM roles and the agent of wid join": func(w *environment) { w.ownIRSA() },
		"with a driver of one's own": func(w *environment) {
			w.ownAgent()
			w.csrs = nil
			part(w.role, "metadata")["annotations"] = object{"registration.open-cluster-management.io/auth-type": "serviceaccount"}
			delete(part(w.agent, "data"), "tls.crt")
			delete(part(w.agent, "data"), "tls.key")
		},
		"hub that forgot the request": func(w *environment) {
			w.csrs = nil
		},
		"denied long ago, then approved": func(w *environment) {
			w.csrs = append(w.csrs, newCSR("cluster1-old", "system:bootstrap:abcdef", "Denied", 3*time.Hour))
		},
		"without add-ons":           func(w *environment) { w.addon = nil },
		"hub without add-on API":    func(w *environment) { w.unknown["ManagedClusterAddOn"] = true },
		"clocks not compared yet":   func(w *environment) { setCondition(w.cluster, "ManagedClusterConditionClockSynced", "", "", "") },
		"Klusterlet without a name": func(w *environment) { delete(part(w.klusterlet, "spec"), "clusterName") },
		"lease of a slow agent": func(w *environment) {
			part(w.cluster, "spec")["leaseDurationSeconds"] = int64(600)
			part(w.lease, "spec")["renewTime"] = time.Now().Add(-40 * time.Minute).UTC().Format("2006-01-02T15:04:05.000000Z")
		},
		"agent hosted elsewhere": func(w *environment) {
			part(w.klusterlet, "spec")["deployOption"] = object{"mode": "SingletonHosted"}
			part(w.klusterlet, "metadata")["name"] = "agents"
			part(w.klusterlet, "spec")["namespace"] = "elsewhere"
		},
		"joined again, and all is well": func(w *environment) {
			w.csrs = append(w.csrs, newCSR("cluster1-new", "system:bootstrap:abcdef", "Approved", time.Minute))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t)
			change(w)
			report := w.run()
			reporttest.Healthy(t, report, secretValue)
			if len(report.Findings) != len(examine.Checks()) {
				t.Errorf("%d findings", len(report.Findings))
			}
		})
	}
}

func TestUncertain(t *testing.T) {
	for name, tt := range map[string]struct {
		change         func(w *environment)
		check, command string
	}{
		"no right to the ManagedCluster": {func(w *environment) { w.forbidden["ManagedCluster"] = true }, "hub", "kubectl --context HUB get managedcluster cluster1"},
		"no right to list requests":      {func(w *environment) { w.forbidden["CertificateSigningRequest"] = true }, "csr", "kubectl --context HUB get csr -l"},
		"no right to Secrets":            {func(w *environment) { w.forbidden["Secret"] = true }, "secret", "kubectl --context CLUSTER get secrets -n agents"},
		"no right to Klusterlets": {func(w *environment) {
			w.forbidden["Klusterlet"] = true
			w.agent["metadata"], w.boot["metadata"] = inDefault(w.agent), inDefault(w.boot)
		}, "agent", "kubectl --context CLUSTER get klusterlets"},
		"no right to add-ons": {func(w *environment) { w.forbidden["ManagedClusterAddOn"] = true }, "addons", "kubectl --context HUB get managedclusteraddons -n cluster1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			tt.change(w)
			report := w.run()
			reporttest.Headline(t, report, reporttest.Want{Check: tt.check, Result: doctor.Unknown}, secretValue)
			if commands := strings.Join(report.Worst().Remedy.Commands, " "); !strings.Contains(commands, tt.command) {
				t.Errorf("got %s", commands)
			}
		})
	}
}

// inDefault returns the metadata of a Secret in the namespace that the agent has by default.
func inDefault(secret object) object {
	return object{"name": part(secret, "metadata")["name"], "namespace": "open-cluster-management-agent"}
}

func TestOneSide(t *testing.T) {
	w := newEnvironment(t)
	w.run() // fills the config in
	hub, spoke := w.config, w.config
	hub.Spoke, spoke.Hub = nil, nil
	if r := examine.Run(t.Context(), hub); r.Of("lease").Result != doctor.Pass || r.Of("agent").Result != doctor.Skip || r.ExitCode() != doctor.ExitPass {
		t.Errorf("%s", r)
	}
	if r := examine.Run(t.Context(), spoke); r.Of("agent").Result != doctor.Pass || r.Of("secret").Result != doctor.Pass || r.Headline != "hub" || r.Result != doctor.Unknown {
		t.Errorf("%s", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if report := examine.Run(ctx, w.config); report.ExitCode() != doctor.ExitUncertain {
		t.Errorf("%s", report)
	}
}

func TestUnreachable(t *testing.T) {
	down, err := client.New(&rest.Config{Host: "https://127.0.0.1:1"}, client.Options{Scheme: runtime.NewScheme()})
	if err != nil {
		t.Fatal(err)
	}
	report := examine.Run(t.Context(), examine.Config{ClusterName: "cluster1", Hub: down, Spoke: down})
	for _, id := range []string{"agent", "hub"} {
		if f := report.Of(id); f.Result != doctor.Unknown || f.Class != "ServiceUnreachable" {
			t.Errorf("%+v", f)
		}
	}
}

// endless is a hub whose lists never end.
type endless struct {
	client.Reader
	pages int
}

func (e *endless) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	e.pages++
	items, ok := list.(*unstructured.UnstructuredList)
	if !ok {
		return fmt.Errorf("a list of %T", list)
	}
	for n := range 100 {
		items.Items = append(items.Items, unstructured.Unstructured{Object: newCSR(fmt.Sprintf("cluster1-%d-%d", e.pages, n), agentUser, "", time.Minute)})
	}
	items.SetContinue("more")
	return nil
}

func TestEndlessList(t *testing.T) {
	w := newEnvironment(t)
	w.run()
	hub := &endless{Reader: w.config.Hub}
	w.config.Hub = hub
	if f := examine.Run(t.Context(), w.config).Of("csr"); f.Class != "TooManyRequests" || hub.pages > 60 {
		t.Errorf("%d pages: %+v", hub.pages, f)
	}
}

// stuck never answers.
type stuck struct{ client.Reader }

func (stuck) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	<-ctx.Done()
	return ctx.Err()
}

func (stuck) List(ctx context.Context, _ client.ObjectList, _ ...client.ListOption) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestHubThatHangs(t *testing.T) {
	report := examine.Run(t.Context(), examine.Config{ClusterName: "cluster1", Hub: stuck{}, Spoke: stuck{}, Timeout: 300 * time.Millisecond})
	if report.ExitCode() != doctor.ExitUncertain {
		t.Errorf("%s", report)
	}
}

func TestHostileNames(t *testing.T) {
	w := newEnvironment(t)
	accepted(w)
	w.csrs = []object{newCSR("cluster1-x; rm -rf ~", "\x1b[2J"+strings.Repeat("u", 10000), "", time.Minute)}
	text := w.run().Text(doctor.TextOptions{Verbose: true})
	if strings.Contains(text, "approve cluster1-x;") || strings.Contains(text, "\x1b") || strings.Contains(text, strings.Repeat("u", 400)) {
		t.Errorf("%s", text)
	}
}

// objects is a cluster with one object of each kind.
type objects map[string]object

func (o objects) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	into, ok := obj.(*unstructured.Unstructured)
	found, there := o[into.GetKind()]
	if !ok || !there {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	into.Object = (&unstructured.Unstructured{Object: found}).DeepCopy().Object
	return nil
}

func (o objects) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	into, ok := list.(*unstructured.UnstructuredList)
	if found, there := o[strings.TrimSuffix(into.GetKind(), "List")]; ok && there {
		into.Items = []unstructured.Unstructured{{Object: found}}
	}
	return nil
}

func FuzzConditions(f *testing.F) {
	f.Add("BootstrapSecretFunctional,HubKubeConfigMissing", "x509: no", managedARN, roleOfPair)
	f.Add(",,,,,", "", "arn:aws:eks:::cluster/", "")
	w := newEnvironment(f)
	w.irsa()
	f.Fuzz(func(t *testing.T, reason, message, arn, suffix string) {
		w.annotate(arn, suffix)
		setCondition(w.klusterlet, "HubConnectionDegraded", "True", reason, message)
		report := examine.Run(t.Context(), examine.Config{ClusterName: "cluster1", HubClusterARN: arn,
			Hub: objects{"ManagedCluster": w.cluster, "Lease": w.lease}, Spoke: objects{"Klusterlet": w.klusterlet, "Secret": w.agent}})
		if report.ExitCode() == doctor.ExitPass {
			t.Errorf("%s", report)
		}
		for _, finding := range report.Findings {
			if strings.ContainsAny(finding.Message, "\n\x1b") || len(finding.Message) > 4000 {
				t.Errorf("%q", finding.Message)
			}
		}
	})
}
