package doctor

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// EnrolmentConfig says which cluster's enrolment at a hub of Open Cluster Management to examine and by what means. What is
// left out makes the checks that need it Skip or Unknown.
type EnrolmentConfig struct {
	// ClusterName is the name of the ManagedCluster. Required.
	ClusterName string
	// Hub and Spoke read from the hub and from the cluster that is to be managed. They need no kinds in their schemes; the
	// rights that they lack make checks Unknown. Give them a time-out (rest.Config.Timeout): their look-up of kinds knows no
	// context, and what is given up goes on until then.
	Hub, Spoke client.Reader
	// HubRESTConfig and SpokeRESTConfig lead to the same clusters, to see their clocks and to keep their credentials out of
	// findings. What ends is judged by the hub's clock, or else by the cluster's. Nil: by this machine's.
	HubRESTConfig, SpokeRESTConfig *rest.Config
	// Klusterlet is the name of the Klusterlet. Empty: the one that registers ClusterName, or else the only one.
	Klusterlet string

	// HubClusterARN is the hub's own ARN in EKS, for clusters that register with IAM (awsirsa). Empty: what the Klusterlet
	// says, which may be another hub.
	HubClusterARN string
	// AssumeRole tries the role that the hub has made for the cluster, as the cluster's agent would. Nil: it is not tried.
	AssumeRole func(ctx context.Context, roleARN string) error
	// DescribeAccessEntry reads the hub's access entry of that role: its Kubernetes groups, or found == false if there is none.
	// Nil: it is not read.
	DescribeAccessEntry func(ctx context.Context, hubClusterARN, roleARN string) (groups []string, found bool, err error)

	// Skip are the stable names of checks that are not wanted.
	Skip []string
	// Timeout bounds everything together. 0: a minute, which is also the most.
	Timeout time.Duration
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
}

const (
	clusterAPI  = "cluster.open-cluster-management.io/v1"
	operatorAPI = "operator.open-cluster-management.io/v1"
	// addonAPI has the conditions that addonOldAPI has.
	addonAPI    = "addon.open-cluster-management.io/v1beta1"
	addonOldAPI = "addon.open-cluster-management.io/v1alpha1"

	clusterLabel = "open-cluster-management.io/cluster-name"
	addonLabel   = "open-cluster-management.io/addon-name"

	defaultAgentNamespace = "open-cluster-management-agent"
)

// enrolment is one run.
type enrolment struct {
	EnrolmentConfig

	// clock is that of whose, the hub or else the cluster itself.
	clock serverClock
	whose string
	// cluster is the ManagedCluster. Nil: there is none, or it could not be read.
	cluster    *unstructured.Unstructured
	clusterErr error
	requests   []request
	moreCSRs   bool
	csrErr     error
	// klusterlet is what the spoke says of itself. Nil: none registers the cluster; otherNames are what others register.
	klusterlet     *unstructured.Unstructured
	klusterletErr  error
	otherNames     []string
	agentNamespace string
	sides          sides
}

// EnrolmentChecks returns the checks of RunEnrolment in their order.
func EnrolmentChecks() []Check { return checksOf((&enrolment{}).steps()) }

// steps have causes before symptoms: what people at the hub have to do, then the agent, then what comes of both.
func (e *enrolment) steps() []step {
	const hub, csr, accept, joined, clock, lease = "enrolment-hub", "enrolment-csr", "enrolment-accept", "enrolment-joined",
		"enrolment-clock", "enrolment-lease"
	return []step{
		{"enrolment-time", "this machine's clock agrees with the hub's", nil, e.checkClock},
		{hub, "the hub knows the cluster", nil, e.named(e.checkHub)},
		{csr, "the agent's requests for certificates", []string{hub}, e.named(e.checkRequests)},
		{accept, "the hub accepts the cluster", []string{hub}, e.named(e.checkAccepted)},
		{"enrolment-agent", "the agent reaches the hub", nil, e.checkKlusterlet},
		{"enrolment-secret", "the agent's Secrets", nil, e.checkSecrets},
		{joined, "the agent has joined", []string{csr, accept}, e.checkJoined},
		{clock, "the clocks of both agree", []string{hub}, e.checkClocks},
		{lease, "the agent renews its lease", []string{joined}, e.checkLease},
		{"enrolment-addons", "the add-ons' credentials", []string{hub}, e.checkAddons},
		{"enrolment-aws", "the cluster's role in AWS", []string{hub}, e.checkAWS},
	}
}

// RunEnrolment examines the enrolment of a cluster at a hub. It needs no provider and always returns a report with a finding
// for each check, within EnrolmentConfig.Timeout; when ctx ends, what is left is Unknown. It changes nothing, reads no kind
// into memory of a cache, and shows names and keys of Secrets only. It is safe for concurrent use.
func RunEnrolment(ctx context.Context, config EnrolmentConfig) *Report {
	config.Timeout, config.Now = limited(config.Timeout, config.Now)
	ctx, secrets := withKnown(ctx)
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, config.Timeout-lastWords(config.Timeout))
	defer cancel()
	ctx, _ = withWaits(ctx)
	config.Hub = watched(config.Hub, named("the hub", config.HubRESTConfig))
	config.HubRESTConfig, config.SpokeRESTConfig = watchedConfig(config.HubRESTConfig), watchedConfig(config.SpokeRESTConfig)
	config.Spoke = watched(config.Spoke, named("the cluster", config.SpokeRESTConfig))
	e := &enrolment{EnrolmentConfig: config, agentNamespace: defaultAgentNamespace}
	e.learn(ctx)
	e.gather(ctx)
	report := &Report{Target: "enrolment of the cluster " + shown(config.ClusterName),
		Findings: performSteps(ctx, e.steps(), config.Skip)}
	lastly(whole, e.learn, config.Timeout)
	report.scrub(secrets.all())
	return report
}

// learn has the run know the credentials for both sides.
func (e *enrolment) learn(ctx context.Context) {
	learn(ctx, e.HubRESTConfig, named("the hub", e.HubRESTConfig))
	learn(ctx, e.SpokeRESTConfig, named("the cluster", e.SpokeRESTConfig))
}

// gather reads what several checks look at.
func (e *enrolment) gather(ctx context.Context) {
	if !validName(e.ClusterName) {
		return
	}
	e.readClock(ctx)
	if e.Spoke != nil {
		var items []unstructured.Unstructured
		items, _, e.klusterletErr = listObjects(ctx, e.Spoke, operatorAPI, "Klusterlet")
		e.choose(items)
	}
	if e.Hub == nil {
		return
	}
	cluster, err := getObject(ctx, e.Hub, clusterAPI, "ManagedCluster", client.ObjectKey{Name: e.ClusterName})
	if e.clusterErr = err; err == nil {
		e.cluster = cluster
	}
	e.sides = e.compare(ctx)
	if !absentKind(err) {
		e.requests, e.moreCSRs, e.csrErr = e.listRequests(ctx)
	}
}

// condition is one of an object's, as far as it is of use.
type condition struct {
	status, reason, message string
	changed                 time.Time
}

// conditionOf tolerates whatever stands in a status.
func conditionOf(object *unstructured.Unstructured, kind string) (c condition, found bool) {
	const most = 100
	list, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, item := range list[:min(most, len(list))] {
		fields, ok := item.(map[string]any)
		if !ok || text(fields, "type") != kind {
			continue
		}
		changed, _ := time.Parse(time.RFC3339, text(fields, "lastTransitionTime"))
		return condition{text(fields, "status"), text(fields, "reason"), text(fields, "message"), changed}, true
	}
	return condition{}, false
}

func text(fields map[string]any, key string) string {
	s, _ := fields[key].(string)
	return s
}

func (e *enrolment) condition(kind string) (condition, bool) {
	if e.cluster == nil {
		return condition{}, false
	}
	return conditionOf(e.cluster, kind)
}

func (e *enrolment) isTrue(kind string) bool {
	c, _ := e.condition(kind)
	return c.status == "True"
}

// field shows a condition beside what it should be.
func (c condition) field(kind, expected string) Field {
	observed := "absent"
	if c.status != "" {
		observed = c.status + " " + c.reason
	}
	if c.message != "" {
		observed += ": " + c.message
	}
	return differs(kind, observed, expected)
}

func validName(name string) bool { return len(validation.IsDNS1123Subdomain(name)) == 0 }

// pasted is a name in a command that somebody will paste: one that is no name of Kubernetes is not for a shell.
func pasted(name string) string {
	if !validName(name) {
		return "NAME"
	}
	return name
}
