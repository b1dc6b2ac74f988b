package identity_test

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

// remoteCluster is an API server that accepts every token.
func (w *environment) remoteCluster(status int, user string) (address string, ca []byte) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(status)
		if status == http.StatusCreated && r.Header.Get("Authorization") != "" {
			_ = json.NewEncoder(rw).Encode(authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{
				UserInfo: authenticationv1.UserInfo{Username: user}}})
		}
	}))
	w.t.Cleanup(server.Close)
	return server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// aks is an AKS cluster.
func (w *environment) aks(status int) {
	const id = "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/prod"
	address, ca := w.remoteCluster(status, "11111111-0000-0000-0000-000000000000")
	w.cloud.Azure().SetCluster(id, authtest.AzureCluster{Tenant: azureTenant, Users: []string{azureClient}, Addresses: []string{address}, CA: ca})
	w.config.Cluster = id
}

// at names a cluster by its address, for providers whose fake has no room for a port.
func (w *environment) at(status int) {
	address, ca := w.remoteCluster(status, gcpEmail)
	w.config.ClusterAddress, w.config.ClusterCA = address, string(ca)
}

func (w *environment) eks(status int) {
	address, ca := w.remoteCluster(status, "tenant-a")
	w.cloud.AWS().SetEKSCluster(authtest.EKSCluster{ARN: clusterARN, Endpoint: address, CA: ca})
	w.config.Cluster = clusterARN
}

func healthy() map[string]func(*environment) {
	return map[string]func(*environment){
		"aws": func(w *environment) {
			w.cloud.AWS().SetRegistry(emptyRegistry())
			w.config.Repository = ecrHost + "/app"
			w.eks(http.StatusCreated)
		},
		"azure": func(w *environment) {
			w.cloud.Azure().SetRegistry(acrHost, authtest.AzureRegistry{Tenant: azureTenant, Pull: []string{azureClient}, Handler: emptyRegistry()})
			w.config.Repository = acrHost + "/app"
			w.aks(http.StatusCreated)
		},
		"gcp": func(w *environment) {
			w.cloud.GCP().SetRegistryHandler(emptyRegistry())
			w.cloud.GCP().SetRepository(garHost+"/my-project/repo", "serviceAccount:"+gcpEmail)
			w.config.Repository = garHost + "/my-project/repo/app"
			w.at(http.StatusCreated)
		},
		"generic": func(w *environment) {
			w.at(http.StatusCreated)
		},
	}
}

// emptyRegistry has every repository, without tags.
func emptyRegistry() http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write([]byte(`{"name":"app","tags":[]}`))
	})
}

// No false alarms: where all fits, nothing fails, nothing warns, and nothing is unknown.
func TestHealthyChains(t *testing.T) {
	for provider, setUp := range healthy() {
		t.Run(provider, func(t *testing.T) {
			w := newEnvironment(t, provider)
			setUp(w)
			report := w.run()
			if report.ExitCode() != doctor.ExitPass || report.Of("exchange").Result != doctor.Pass {
				t.Errorf("exit code %d:\n%s", report.ExitCode(), report)
			}
		})
		t.Run(provider+" with a token in a file, without a cluster", func(t *testing.T) {
			w := newEnvironment(t, provider)
			setUp(w)
			w.write(w.sign(nil))
			w.withoutCluster, w.config.Annotations = true, w.account.Annotations
			if report := w.run(); report.ExitCode() != doctor.ExitPass || report.Of("exchange").Result != doctor.Pass {
				t.Errorf("exit code %d:\n%s", report.ExitCode(), report)
			}
		})
	}
}
