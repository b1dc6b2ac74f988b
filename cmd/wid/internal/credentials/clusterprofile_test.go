package credentials

import (
	"encoding/json"
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
	gkeEndpoint  = "https://gke-prod.europe-west3.gke.goog"
	spoke        = "https://spoke.example:6443"
	evil         = "https://evil.example"
)

// profile is the cluster of a ClusterProfile, as client-go passes it to an exec
// plugin.
type profile struct {
	server, ca, proxy string
	config            any
}

// execInfo has client-go call this process.
func (p profile) execInfo(t *testing.T) {
	t.Helper()
	cluster := map[string]any{"server": p.server, "certificate-authority-data": []byte(p.ca), "proxy-url": p.proxy}
	if p.config != nil {
		cluster["config"] = p.config
	}
	info, err := json.Marshal(map[string]any{"kind": "ExecCredential",
		"apiVersion": "client.authentication.k8s.io/v1", "spec": map[string]any{"cluster": cluster}})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(plugin.ExecInfoVariable, string(info))
}

type object = map[string]any

func named(cluster string) object { return object{"clusterName": cluster, "other": 1} }

// call is wid exec-credential for a ClusterProfile.
type call struct {
	flags   []string
	profile profile
	code    int
	want    string // in the error
}

// clusters are those of the clouds, and the CA data of their cloud and of
// somebody else.
func (w *environment) clusters() (ca, foreign string) {
	w.t.Helper()
	w.cloud.AWS().SetEKSCluster(cloudtest.EKSCluster{ARN: prodARN, Endpoint: prodEndpoint, CA: w.cloud.CA()})
	w.cloud.AWS().SetEKSAccessEntry(prodARN, role("tenant-a"), cloudtest.EKSAccessEntry{})
	w.cloud.GCP().SetCluster(gkeProd, cloudtest.GKECluster{PublicEndpoint: "203.0.113.10",
		DNSEndpoint: strings.TrimPrefix(gkeEndpoint, "https://"), CA: w.cloud.CA(), Viewers: []string{principal}})
	return string(w.cloud.CA()), string(testenv.Cloud(w.t).CA())
}

// try makes calls, each twice: the second one finds the cache.
func (w *environment) try(base []string, calls map[string]call) {
	for name, c := range calls {
		w.t.Run(name, func(t *testing.T) {
			c.profile.execInfo(t)
			for range 2 {
				r := w.run("", slices.Concat([]string{"exec-credential"}, base, c.flags)...)
				var answer clientauthv1.ExecCredential
				ok := json.Unmarshal([]byte(r.stdout), &answer) == nil && answer.Status != nil && answer.Status.Token != ""
				if r.code != c.code || !strings.Contains(r.err, c.want) || ok != (c.code == 0) || !ok && r.stdout != "" {
					t.Fatalf("got %+v, want code %d and %q", r, c.code, c.want)
				}
				if !slices.Contains(base, "--provider=aws") || !ok {
					continue
				}
				if _, id, err := w.cloud.AWS().VerifyEKSToken(prodARN, answer.Status.Token); err != nil ||
					id.RoleARN != role("tenant-a") {
					t.Errorf("the cluster finds %+v, %v; want the role of tenant A", id, err)
				}
			}
		})
	}
}

const (
	foreignCA   = "is not one of the cluster's own"
	foreignHost = "is not that of the cluster"
)

// The author of a ClusterProfile chooses address, CA, proxy and config. The
// credential goes to a cluster that the cloud knows, at its own address and
// with its own CA.
func TestProfilesOfEKS(t *testing.T) {
	w := newEnvironment(t)
	ca, foreign := w.clusters()
	arn := named(prodARN)
	byName, byARN := []string{"--cluster-name=prod"}, []string{"--cluster=" + prodARN}
	const bad, denied = cli.ExitMisconfigured, cli.ExitDenied
	w.try(append(w.inHand(), "--provider=aws"), map[string]call{
		"its ARN":                       {nil, profile{prodEndpoint, ca, "", arn}, 0, ""},
		"its name":                      {nil, profile{prodEndpoint, ca, "", named("prod")}, 0, ""},
		"the flag's name":               {byName, profile{prodEndpoint, ca, "", nil}, 0, ""},
		"system's roots":                {nil, profile{prodEndpoint, "", "", arn}, 0, ""},
		"a proxy":                       {nil, profile{prodEndpoint, ca, "http://proxy.example:3128", arn}, 0, ""},
		"foreign address":               {nil, profile{evil, ca, "", arn}, bad, foreignHost},
		"its name, foreign address":     {nil, profile{evil, foreign, "", named("prod")}, bad, foreignHost},
		"flag's name, foreign address":  {byName, profile{evil, foreign, "", nil}, bad, foreignHost},
		"another cluster's flag":        {byARN, profile{evil, ca, "", named("other")}, bad, foreignHost},
		"foreign CA":                    {nil, profile{prodEndpoint, foreign, "", arn}, denied, foreignCA},
		"foreign CA besides its own":    {nil, profile{prodEndpoint, ca + foreign, "", arn}, denied, foreignCA},
		"foreign CA and proxy":          {nil, profile{prodEndpoint, foreign, evil, named("prod")}, denied, foreignCA},
		"foreign CA, flag's ARN":        {byARN, profile{prodEndpoint, foreign, "", named("other")}, denied, foreignCA},
		"no name":                       {nil, profile{prodEndpoint, ca, "", nil}, denied, "clusterName"},
		"config is a list":              {nil, profile{prodEndpoint, ca, "", []string{"prod"}}, bad, "clusterName"},
		"the name in config is no text": {nil, profile{prodEndpoint, ca, "", object{"clusterName": 7}}, bad, "clusterName"},
	})
}

func TestProfilesOfGKEAndAKS(t *testing.T) {
	w := newEnvironment(t)
	ca, foreign := w.clusters()
	w.try(append(w.annotationFlags(""), w.tokenFile(gcpAudience), "--provider=gcp"), map[string]call{
		"its name":                 {nil, profile{"https://203.0.113.10", ca, "", named(gkeProd)}, 0, ""},
		"its DNS endpoint":         {nil, profile{gkeEndpoint, "", "", named(gkeProd)}, 0, ""},
		"DNS endpoint, foreign CA": {nil, profile{gkeEndpoint, foreign, "", named(gkeProd)}, cli.ExitDenied, foreignCA},
		"GKE without a name":       {nil, profile{evil, foreign, "", nil}, cli.ExitDenied, "clusterName"},
		"DNS endpoint, no name": {nil, profile{"https://gke-evil.europe-west3.gke.goog", "", "", nil}, cli.ExitDenied,
			"clusterName"},
		"bare name of GKE": {nil, profile{"https://203.0.113.10", ca, "", named("prod")}, cli.ExitMisconfigured,
			"projects/<project>"},
	})
	w.try(append(w.annotationFlags(""), w.tokenFile(azure.DefaultAudience), "--provider=azure"), map[string]call{
		"AKS without a name": {nil, profile{evil, foreign, "", nil}, cli.ExitDenied, "clusterName"},
		"bare name of AKS": {nil, profile{evil, foreign, "", named("prod")}, cli.ExitMisconfigured,
			"/subscriptions/<GUID>"},
	})
}

// Without a cloud, the token's audience is the address, or a flag names the
// cluster.
func TestProfilesOfNoCloud(t *testing.T) {
	w := newEnvironment(t)
	ca, foreign := w.clusters()
	address, caFlag := "--cluster-address="+spoke, "--cluster-ca-file="+w.write("ca.crt", ca)
	const denied, proxy = cli.ExitDenied, "http://evil.example"
	w.try([]string{w.tokenFile(spoke), "--provider=generic"}, map[string]call{
		"its own audience":    {nil, profile{spoke, ca, "", nil}, 0, ""},
		"a name is of no use": {nil, profile{spoke, ca, "", named("spoke-1")}, 0, ""},
		"another address":     {nil, profile{evil, foreign, "", nil}, denied, "audience"},
		"an API server's own": {[]string{"--api-server-audience=" + spoke}, profile{spoke, ca, "", nil}, denied,
			"API server"},
		"proxy":                {nil, profile{spoke, foreign, proxy, nil}, denied, "proxy-url"},
		"proxy and flag":       {[]string{address}, profile{spoke, foreign, proxy, nil}, denied, "--cluster-ca-file"},
		"proxy and CA":         {[]string{address, caFlag}, profile{spoke, ca, "http://proxy.example:3128", nil}, 0, ""},
		"proxy and foreign CA": {[]string{address, caFlag}, profile{spoke, foreign, proxy, nil}, denied, foreignCA},
	})
	toEvil := profile{evil, foreign, "", nil}
	w.try([]string{w.tokenFile("fleet"), "--provider=generic", "--audience=fleet"}, map[string]call{
		"an audience for many":     {nil, toEvil, denied, "--cluster-address"},
		"shared audience and flag": {[]string{address}, profile{spoke, ca, "", nil}, 0, ""},
		"address twice": {[]string{address, "--cluster-address=" + evil}, toEvil, cli.ExitUsage,
			`"--cluster-address" flag: it is given twice`},
		"ServiceAccount twice": {[]string{"--service-account=tenant-a/app", "--service-account=tenant-a/app"}, toEvil,
			cli.ExitUsage, `"--service-account" flag: it is given twice`},
		"bool twice": {[]string{"--no-cache", "--no-cache=false"}, toEvil, cli.ExitUsage,
			`"--no-cache" flag: it is given twice`},
		"appended behind --": {[]string{"--", "--cluster-address=" + evil}, toEvil, cli.ExitUsage, "unknown command"},
	})
}

// A kubeconfig for EKS: address and certificate authority come from AWS, what
// kubectl runs gets a token that EKS accepts, also where none of the variables
// is set, and nobody else's server gets one.
func TestKubeconfigForEKS(t *testing.T) {
	w := newEnvironment(t)
	ca, _ := w.clusters()
	t.Setenv("WID_SESSION_NAME_PREFIX", "hub")
	t.Setenv("AWS_REGION", "eu-central-1")
	file := w.dir + "/prod.yaml"
	inHand := w.inHand()
	if r := w.run("", append([]string{"kubeconfig", "--provider=aws", "--cluster=" + prodARN, "-f", file},
		inHand[:len(inHand)-1]...)...); r.code != 0 || r.stdout != "" || !strings.Contains(r.stderr, file) {
		t.Fatalf("got %+v, want %s", r, file)
	}
	config := w.load(file)
	cluster, exec := config.Clusters["wid"], config.AuthInfos["wid"].Exec
	if !strings.EqualFold(cluster.Server, prodEndpoint+":443") || string(cluster.CertificateAuthorityData) != ca ||
		!exec.ProvideClusterInfo || exec.InteractiveMode != "Never" {
		t.Errorf("got %+v and %+v, want the address and the CA of %s", cluster, exec, prodARN)
	}
	w.kept = "" // the arguments have it
	t.Setenv("WID_SESSION_NAME_PREFIX", "another")
	for _, variable := range exec.Env {
		t.Setenv(variable.Name, variable.Value)
	}
	for server, code := range map[string]int{cluster.Server: 0, evil: cli.ExitMisconfigured} {
		profile{server, ca, "", nil}.execInfo(t)
		r := w.run("", exec.Args...)
		var answer clientauthv1.ExecCredential
		_ = json.Unmarshal([]byte(r.stdout), &answer) // after an error there is none
		if r.code != code || (answer.Status != nil) != (code == 0) {
			t.Fatalf("%s: got %+v, want exit code %d", server, r, code)
		}
		if code != 0 {
			continue
		}
		_, id, err := w.cloud.AWS().VerifyEKSToken(prodARN, answer.Status.Token)
		if err != nil || id.RoleARN != role("tenant-a") || id.SessionName != "hub=tenant-a.app" {
			t.Errorf("the bearer is of %+v, %v; want the session hub=tenant-a.app", id, err)
		}
	}
}
