package doctor_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/olddoctor"
)

// No false alarms: with certificates, with IAM roles, with an agent of yesterday's certificate, without add-ons.
func TestEnrolmentHealthy(t *testing.T) {
	for name, change := range map[string]func(w *hubWorld){
		"with certificates": func(*hubWorld) {},
		"with IAM roles":    func(w *hubWorld) { w.irsa() },
		"hub that forgot the request": func(w *hubWorld) {
			w.csrs = nil
		},
		"denied long ago, then approved": func(w *hubWorld) {
			w.csrs = append(w.csrs, newCSR("cluster1-old", "system:bootstrap:abcdef", "Denied", 3*time.Hour))
		},
		"without add-ons":           func(w *hubWorld) { w.addon = nil },
		"hub without add-on API":    func(w *hubWorld) { w.unknown["ManagedClusterAddOn"] = true },
		"clocks not compared yet":   func(w *hubWorld) { setCondition(w.cluster, "ManagedClusterConditionClockSynced", "", "", "") },
		"Klusterlet without a name": func(w *hubWorld) { delete(part(w.klusterlet, "spec"), "clusterName") },
		"lease of a slow agent": func(w *hubWorld) {
			part(w.cluster, "spec")["leaseDurationSeconds"] = int64(600)
			part(w.lease, "spec")["renewTime"] = time.Now().Add(-40 * time.Minute).UTC().Format("2006-01-02T15:04:05.000000Z")
		},
		"agent hosted elsewhere": func(w *hubWorld) {
			part(w.klusterlet, "spec")["deployOption"] = object{"mode": "SingletonHosted"}
			part(w.klusterlet, "metadata")["name"] = "agents"
			part(w.klusterlet, "spec")["namespace"] = "elsewhere"
		},
		"joined again, and all is well": func(w *hubWorld) {
			w.csrs = append(w.csrs, newCSR("cluster1-new", "system:bootstrap:abcdef", "Approved", time.Minute))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newHubWorld(t)
			change(w)
			report := w.run()
			if report.ExitCode() != doctor.ExitPass || report.Target == "" || len(report.Findings) != len(doctor.EnrolmentChecks()) {
				t.Errorf("exit code %d:\n%s", report.ExitCode(), report)
			}
			withoutSecret(t, report)
		})
	}
}

// What could not be looked at is not called good, and the missing right is named.
func TestEnrolmentUncertain(t *testing.T) {
	for name, tt := range map[string]struct {
		change        func(w *hubWorld)
		check, remedy string
	}{
		"no access to the hub":   {func(w *hubWorld) { w.config.Hub = w.serve(); w.forbidden["ManagedCluster"] = true }, "enrolment-hub", "managedclusters.cluster"},
		"no right to list CSRs":  {func(w *hubWorld) { w.forbidden["CertificateSigningRequest"] = true }, "enrolment-csr", "certificatesigningrequests"},
		"no right to Secrets":    {func(w *hubWorld) { w.forbidden["Secret"] = true }, "enrolment-secret", "namespace agents"},
		"no right to Klusterlet": {func(w *hubWorld) { w.forbidden["Klusterlet"] = true; w.boot, w.agent = nil, nil }, "enrolment-agent", "klusterlets.operator"},
		"no right to add-ons":    {func(w *hubWorld) { w.forbidden["ManagedClusterAddOn"] = true }, "enrolment-addons", "namespace cluster1"},
		"hub's ARN not known": {func(w *hubWorld) {
			w.irsa()
			w.config.HubClusterARN, part(w.klusterlet, "spec")["registrationConfiguration"] = "", object{}
		}, "enrolment-aws", "describe-cluster"},
		"role not tried": {func(w *hubWorld) { w.irsa(); w.config.AssumeRole = nil }, "enrolment-aws", "role/ocm-hub-" + roleOfPair},
		"entry not read": {func(w *hubWorld) {
			w.irsa()
			w.config.DescribeAccessEntry = nil
		}, "enrolment-aws", "describe-access-entry --region eu-west-1 --cluster-name hubcluster1"},
	} {
		w := newHubWorld(t)
		tt.change(w)
		report := w.run()
		if f := report.Of(tt.check); f.Result != doctor.Unknown || !strings.Contains(f.Remedy, tt.remedy) || report.ExitCode() == doctor.ExitPass {
			t.Errorf("%s: %+v\n%s", name, f, report)
		}
	}
}

// A cluster that cannot be reached lacks no right.
func TestEnrolmentUnreachable(t *testing.T) {
	down := newClient(t, &rest.Config{Host: "https://127.0.0.1:1"})
	report := doctor.RunEnrolment(t.Context(), doctor.EnrolmentConfig{ClusterName: "cluster1", Hub: down, Spoke: down})
	for _, id := range []string{"enrolment-hub", "enrolment-csr", "enrolment-agent", "enrolment-secret"} {
		if f := report.Of(id); f.Result != doctor.Unknown || !strings.Contains(f.Message, "connection refused") || strings.Contains(f.Remedy, "grant") {
			t.Errorf("%+v", f)
		}
	}
}

// One side alone is looked at as far as it goes.
func TestEnrolmentOneSide(t *testing.T) {
	w := newHubWorld(t)
	w.run() // fills the config in
	hub, spoke := w.config, w.config
	hub.Spoke, spoke.Hub = nil, nil
	if got := results(doctor.RunEnrolment(t.Context(), hub)); got["enrolment-lease"] != doctor.Pass || got["enrolment-agent"] != doctor.Unknown {
		t.Errorf("%v", got)
	}
	if got := results(doctor.RunEnrolment(t.Context(), spoke)); got["enrolment-agent"] != doctor.Pass || got["enrolment-secret"] != doctor.Pass || got["enrolment-hub"] != doctor.Unknown {
		t.Errorf("%v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if report := doctor.RunEnrolment(ctx, w.config); report.ExitCode() != doctor.ExitUncertain {
		t.Errorf("%s", report)
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

func TestEnrolmentEndlessList(t *testing.T) {
	w := newHubWorld(t)
	w.run()
	hub := &endless{Reader: w.config.Hub}
	w.config.Hub = hub
	report := doctor.RunEnrolment(t.Context(), w.config)
	if f := report.Of("enrolment-csr"); f.Class != "O9" || !strings.Contains(f.Message, "more than 1000") || hub.pages > 40 {
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

// A hub that hangs costs no more than the time limit.
func TestEnrolmentTimeLimit(t *testing.T) {
	start := time.Now()
	report := doctor.RunEnrolment(t.Context(), doctor.EnrolmentConfig{ClusterName: "cluster1", Hub: stuck{}, Spoke: stuck{}, Timeout: time.Second})
	if took := time.Since(start); took > 30*time.Second || report.ExitCode() != doctor.ExitUncertain {
		t.Errorf("took %s:\n%s", took, report)
	}
}

// Names that a hostile hub gives its objects are not handed to a shell.
func TestEnrolmentHostileNames(t *testing.T) {
	w := newHubWorld(t)
	accepted(w)
	w.csrs = []object{newCSR("cluster1-x; rm -rf ~", "\x1b[2J"+strings.Repeat("u", 10000), "", time.Minute)}
	text := w.run().String()
	if strings.Contains(text, "approve cluster1-x;") || strings.Contains(text, "\x1b") || strings.Contains(text, strings.Repeat("u", 400)) {
		t.Errorf("%s", text)
	}
	w = newHubWorld(t)
	w.config.ClusterName = "a; rm -rf ~"
	if f := w.run().Worst(); f.ID != "enrolment-hub" || !strings.Contains(f.Message, "malformed") {
		t.Errorf("%+v", f)
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

// Whatever stands in conditions and annotations, there is a report, of one line a finding.
func FuzzEnrolment(f *testing.F) {
	f.Add("BootstrapSecretFunctional,HubKubeConfigMissing", "x509: no", managedARN, roleOfPair)
	f.Add(",,,,,", "", "arn:aws:eks:::cluster/", "")
	w := newHubWorld(f)
	w.irsa()
	f.Fuzz(func(t *testing.T, reason, message, arn, suffix string) {
		w.annotate(arn, suffix)
		setCondition(w.klusterlet, "HubConnectionDegraded", "True", reason, message)
		report := doctor.RunEnrolment(t.Context(), doctor.EnrolmentConfig{ClusterName: "cluster1", HubClusterARN: arn,
			Hub: objects{"ManagedCluster": w.cluster, "Lease": w.lease}, Spoke: objects{"Klusterlet": w.klusterlet, "Secret": w.agent}})
		if report.Of("enrolment-agent").Result == doctor.Pass || report.ExitCode() == doctor.ExitPass {
			t.Errorf("%s", report)
		}
		for _, finding := range report.Findings {
			if strings.ContainsAny(finding.Message, "\n\x1b") || len(finding.Message) > 4000 {
				t.Errorf("%q", finding.Message)
			}
		}
	})
}
