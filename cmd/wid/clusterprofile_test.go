package main

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clientauthv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"

	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const (
	prodEndpoint = "https://ABCDEF.gr7.eu-central-1.eks.amazonaws.com"
	gkeProd      = "projects/prod-project/locations/europe-west3/clusters/prod"
	gkeAddress   = "https://203.0.113.10"
)

// profile is the cluster of a ClusterProfile, as client-go passes it to an exec
// plugin.
type profile struct{ server, ca, proxy, config string }

func (p profile) env(t *testing.T) []string {
	t.Helper()
	quoted := func(v any) string {
		content, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	info := `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"cluster":{"server":` +
		quoted(p.server) +
		`,"certificate-authority-data":"` + base64.StdEncoding.EncodeToString([]byte(p.ca)) + `","proxy-url":` +
		quoted(p.proxy)
	if p.config != "" {
		info += `,"config":` + p.config
	}
	return []string{plugin.ExecInfoVariable + "=" + info + "}}}"}
}

func named(cluster string) string { return `{"clusterName":"` + cluster + `","other":1}` }

// The author of a ClusterProfile chooses address, CA, proxy and config. The
// credential goes to a cluster that the cloud knows, at its own address and
// with its own CA, or the token's audience is the address.
func TestExecCredentialOfAClusterProfile(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	w.cloud.AWS().SetEKSCluster(cloudtest.EKSCluster{ARN: prodARN, Endpoint: prodEndpoint, CA: w.cloud.CA()})
	w.cloud.AWS().SetEKSAccessEntry(prodARN, role("tenant-a"), cloudtest.EKSAccessEntry{})
	w.cloud.GCP().SetCluster(gkeProd,
		cloudtest.GKECluster{PublicEndpoint: "203.0.113.10", DNSEndpoint: "gke-prod.europe-west3.gke.goog", CA: w.cloud.CA(),
			Viewers: []string{
				"principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/east/subject/" +
					subjectOfApp}})
	ca, foreignCA := string(w.cloud.CA()), string(testenv.Cloud(t).CA())
	const address = "https://spoke.example:6443"
	forAWS := append(w.inHand(t), "--provider=aws")
	forGCP := append(annotationFlags(), w.tokenFile(t, "//iam.googleapis.com/"+gcpProvider), "--provider=gcp")
	forAzure := append(annotationFlags(), w.tokenFile(t, azure.DefaultAudience), "--provider=azure")
	generic := []string{w.tokenFile(t, address), "--provider=generic"}
	shared := []string{w.tokenFile(t, "fleet"), "--provider=generic", "--audience=fleet"}
	caFile := filepath.Join(t.TempDir(), "ca.crt")
	caFlag := "--cluster-ca-file=" + caFile
	if err := os.WriteFile(caFile, []byte(ca), 0o600); err != nil {
		t.Fatal(err)
	}
	gke := profile{gkeAddress, ca, "", named(gkeProd)}
	for name, tc := range map[string]struct {
		args    []string
		profile profile
		code    int
		want    string // on standard error
	}{
		"EKS by its ARN":  {forAWS, profile{prodEndpoint, ca, "", named(prodARN)}, 0, ""},
		"EKS by its name": {forAWS, profile{prodEndpoint, ca, "", named("prod")}, 0, ""},
		"EKS, the flag's name": {append(forAWS[:len(forAWS):len(forAWS)], "--cluster-name=prod"),
			profile{prodEndpoint, ca, "", ""}, 0, ""},
		"EKS, system's roots": {forAWS, profile{prodEndpoint, "", "", named(prodARN)}, 0, ""},
		"EKS through a proxy": {forAWS, profile{prodEndpoint, ca, "http://proxy.example:3128", named(prodARN)},
			0, ""},
		"EKS, foreign address": {forAWS, profile{"https://evil.example", ca, "", named(prodARN)},
			cli.ExitMisconfigured, "is not that of the cluster"},
		"EKS by its name, foreign address": {forAWS, profile{"https://evil.example", foreignCA, "", named("prod")},
			cli.ExitMisconfigured, "is not that of the cluster"},
		"EKS, flag's name, foreign": {append(forAWS[:len(forAWS):len(forAWS)], "--cluster-name=prod"),
			profile{"https://evil.example", foreignCA, "", ""}, cli.ExitMisconfigured, "is not that of the cluster"},
		"EKS, foreign CA": {forAWS, profile{prodEndpoint, foreignCA, "", named(prodARN)}, cli.ExitDenied,
			"is not one of the cluster's own"},
		"EKS, foreign CA besides its own": {forAWS, profile{prodEndpoint, ca + foreignCA, "", named(prodARN)},
			cli.ExitDenied, "is not one of the cluster's own"},
		"EKS, foreign CA and proxy": {forAWS, profile{prodEndpoint, foreignCA, "http://evil.example", named("prod")},
			cli.ExitDenied, "is not one of the cluster's own"},
		"EKS without a name": {forAWS, profile{prodEndpoint, ca, "", ""}, cli.ExitDenied, "clusterName"},
		"EKS, another cluster's flag": {append(forAWS[:len(forAWS):len(forAWS)], "--cluster="+prodARN),
			profile{"https://evil.example", ca, "", named("other")}, cli.ExitMisconfigured, "is not that of the cluster"},
		"EKS, foreign CA, flag's ARN": {append(forAWS[:len(forAWS):len(forAWS)], "--cluster="+prodARN),
			profile{prodEndpoint, foreignCA, "", named("other")}, cli.ExitDenied, "is not one of the cluster's own"},
		"GKE by its name": {forGCP, gke, 0, ""},
		"GKE by its DNS endpoint": {forGCP,
			profile{"https://gke-prod.europe-west3.gke.goog", "", "", named(gkeProd)}, 0, ""},
		"GKE, DNS endpoint, foreign CA": {forGCP,
			profile{"https://gke-prod.europe-west3.gke.goog", foreignCA, "", named(gkeProd)}, cli.ExitDenied,
			"is not one of the cluster's own"},
		"GKE without a name": {forGCP, profile{"https://evil.example", foreignCA, "", ""}, cli.ExitDenied,
			"clusterName"},
		"GKE, DNS endpoint without a name": {forGCP, profile{"https://gke-evil.europe-west3.gke.goog", "", "", ""},
			cli.ExitDenied, "clusterName"},
		"GKE, bare name": {forGCP, profile{gkeAddress, ca, "", named("prod")}, cli.ExitMisconfigured,
			"projects/<project>"},
		"AKS without a name": {forAzure, profile{"https://evil.example", foreignCA, "", ""}, cli.ExitDenied,
			"clusterName"},
		"AKS, bare name": {forAzure, profile{"https://evil.example", foreignCA, "", named("prod")},
			cli.ExitMisconfigured, "/subscriptions/<GUID>"},
		"generic, its own audience":    {generic, profile{address, ca, "", ""}, 0, ""},
		"generic, a name is of no use": {generic, profile{address, ca, "", named("spoke-1")}, 0, ""},
		"generic, another address": {generic, profile{"https://evil.example", foreignCA, "", ""}, cli.ExitDenied,
			"audience"},
		"generic, an API server's own": {append(generic[:len(generic):len(generic)], "--api-server-audience="+address),
			profile{address, ca, "", ""}, cli.ExitDenied, "API server"},
		"generic, proxy": {generic, profile{address, foreignCA, "http://evil.example", ""}, cli.ExitDenied,
			"proxy-url"},
		"generic, an audience for many": {shared, profile{"https://evil.example", foreignCA, "", ""}, cli.ExitDenied,
			"--cluster-address"},
		"generic, proxy and flag": {append(generic[:len(generic):len(generic)], "--cluster-address="+address),
			profile{address, foreignCA, "http://evil.example", ""}, cli.ExitDenied, "--cluster-ca-file"},
		"generic, proxy and CA": {append(generic[:len(generic):len(generic)], "--cluster-address="+address, caFlag),
			profile{address, ca, "http://proxy.example:3128", ""}, 0, ""},
		"generic, proxy, CA, foreign CA": {
			append(generic[:len(generic):len(generic)], "--cluster-address="+address, caFlag),
			profile{address, foreignCA, "http://evil.example", ""}, cli.ExitDenied, "is not one of the cluster's own"},
		"shared audience and flag": {append(shared[:len(shared):len(shared)], "--cluster-address="+address),
			profile{address, ca, "", ""}, 0, ""},
		"config is a list": {forAWS, profile{prodEndpoint, ca, "", `["prod"]`}, cli.ExitMisconfigured,
			"clusterName"},
		"config, name is no text": {forAWS, profile{prodEndpoint, ca, "", `{"clusterName":7}`},
			cli.ExitMisconfigured, "clusterName"},
		"ServiceAccount twice": {append(forAWS[:len(forAWS):len(forAWS)], "--service-account=tenant-a/app",
			"--service-account=tenant-a/app"), profile{prodEndpoint, ca, "", named(prodARN)}, cli.ExitUsage,
			`"--service-account" flag: it is given twice`},
		"address twice": {append(shared[:len(shared):len(shared)], "--cluster-address="+address,
			"--cluster-address=https://evil.example"), profile{"https://evil.example", foreignCA, "", ""}, cli.ExitUsage,
			`"--cluster-address" flag: it is given twice`},
		"bool twice": {append(forAWS[:len(forAWS):len(forAWS)], "--no-cache", "--no-cache=false"),
			profile{prodEndpoint, ca, "", named(prodARN)}, cli.ExitUsage, `"--no-cache" flag: it is given twice`},
		"appended behind --": {append(forAWS[:len(forAWS):len(forAWS)], "--",
			"--cluster-address=https://evil.example"), profile{"https://evil.example", ca, "", ""}, cli.ExitUsage,
			"unknown command"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second one finds the cache
				r := w.exec(t, "", tc.profile.env(t), "wid", slices.Concat([]string{"exec-credential"}, tc.args)...)
				var answer clientauthv1.ExecCredential
				ok := json.Unmarshal([]byte(r.stdout), &answer) == nil && answer.Status != nil && answer.Status.Token != ""
				if r.code != tc.code || !strings.Contains(r.stderr, tc.want) || ok != (tc.code == 0) || !ok && r.stdout != "" {
					t.Fatalf("got %+v, want code %d and %q", r, tc.code, tc.want)
				}
				if strings.HasPrefix(name, "EKS") && ok {
					if _, id, err := w.cloud.AWS().VerifyEKSToken(prodARN, answer.Status.Token); err != nil ||
						id.RoleARN != role("tenant-a") {
						t.Errorf("the cluster finds %+v, %v", id, err)
					}
				}
			}
		})
	}
}
