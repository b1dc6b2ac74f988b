package awsirsa

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/kubeevent"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// Binding selects how the hub's API server maps roles to groups.
type Binding string

const (
	// AccessEntries uses access entries of the EKS API, the default.
	AccessEntries Binding = ""
	// AWSAuth uses the ConfigMap kube-system/aws-auth, which
	// aws-iam-authenticator reads too. A switch leaves the mappings of the
	// other binding behind, so deny all clusters before it and accept them
	// after it.
	AWSAuth Binding = "aws-auth"
)

// defaultMaxRoles is IAM's default limit of roles in an account.
const defaultMaxRoles = 1000

// HubDriverOptions configures the hub's half.
type HubDriverOptions struct {
	// Hub is the ARN of the hub. Outside EKS it only names the account of the
	// roles and the cluster ID in tokens. Required.
	Hub string
	// IAM is a client for the hub's account. Required.
	IAM IAM
	// EKS is a client for the hub's region. Required for AccessEntries.
	EKS EKS
	// Client reads and writes the ConfigMap aws-auth, with the rights of
	// [AWSAuthRBAC]. Its reads need to bypass the cache, because these rights
	// allow no informer. Required for AWSAuth.
	Client client.Client
	// Binding is AccessEntries or AWSAuth.
	Binding Binding
	// AutoApprove lists patterns of ARNs. The hub accepts matching clusters
	// automatically. Empty: an administrator accepts each cluster. A pattern
	// has to match the whole ARN. In it "*" matches any characters but ":" and
	// "/", and "?" matches one of them. Write out the account, because any AWS
	// account could have a cluster that matches a wildcard.
	//
	// A cluster claims its ARN without proof. Its agent proves it later, when
	// it assumes a role. A false claim gives access only to the agent of that
	// ARN. It also blocks that ARN for other clusters until an administrator
	// denies it.
	AutoApprove []string
	// MaxRoles is the number of roles that this hub may have in IAM.
	// Default: 1000. From 80 % on, an Event of the cluster warns. At MaxRoles
	// the hub creates no role. It counts the roles that this process has seen,
	// so after a restart the count is exact only after a resync.
	MaxRoles int
	// Events records the warnings about MaxRoles. Nil records nothing.
	Events events.EventRecorder
	// Registerer takes the metrics. Nil drops them.
	Registerer prometheus.Registerer
}

// HubDriver is the hub's half. It is safe for concurrent use.
type HubDriver struct {
	options HubDriverOptions
	hub     ClusterARN
	binder  binder
	gauge   prometheus.Gauge

	mu    sync.Mutex
	roles map[string]bool // the roles of this hub that the process has seen
}

var _ registration.HubDriver = (*HubDriver)(nil)

// binder maps a role to the groups of a cluster.
type binder interface {
	// bind maps the role and repairs drift. It refuses a mapping without the
	// tags of this hub and cluster.
	bind(ctx context.Context, g *grant) error
	// unbind removes a mapping with these tags. It works without the role.
	unbind(ctx context.Context, g *grant) error
}

// grant holds the access of one cluster.
type grant struct {
	cluster      string
	hub, managed ClusterARN
	roleName     string
	roleARN      string
	roleID       string // once the role was read
}

// owner returns the tags without which the hub changes nothing.
func (g *grant) owner() map[string]string {
	return map[string]string{tagOwnerHub: g.hub.String(), tagOwnerCluster: g.cluster}
}

// NewHubDriver returns the hub's half of the driver.
func NewHubDriver(options HubDriverOptions) (*HubDriver, error) {
	hub, err := ParseClusterARN(options.Hub)
	if err != nil {
		return nil, fmt.Errorf("awsirsa: HubDriverOptions.Hub: %w", err)
	}
	if _, err := HubRoleName(hub); err != nil {
		return nil, fmt.Errorf("awsirsa: %w", err)
	}
	if options.MaxRoles < 0 {
		return nil, fmt.Errorf("awsirsa: HubDriverOptions.MaxRoles is %d: it cannot be negative", options.MaxRoles)
	}
	options.MaxRoles = cmp.Or(options.MaxRoles, defaultMaxRoles)
	if options.IAM == nil {
		return nil, errors.New("awsirsa: HubDriverOptions.IAM is missing: use iam.NewFromConfig")
	}
	options.AutoApprove = slices.Clone(options.AutoApprove)
	h := &HubDriver{options: options, hub: hub, roles: map[string]bool{}}
	switch options.Binding {
	case AccessEntries:
		h.binder = accessEntries{options.EKS}
		if options.EKS == nil {
			return nil, errors.New("awsirsa: HubDriverOptions.EKS is missing: use eks.NewFromConfig, or the binding aws-auth")
		}
	case AWSAuth:
		h.binder = awsAuth{options.Client}
		if options.Client == nil {
			return nil, errors.New("awsirsa: HubDriverOptions.Client is missing: the binding aws-auth needs a client of the hub")
		}
	default:
		return nil, fmt.Errorf("awsirsa: unknown binding %q: use %q, or leave it out for access entries", options.Binding,
			AWSAuth)
	}
	for _, text := range options.AutoApprove {
		if err := CheckPattern(text); err != nil {
			return nil, fmt.Errorf("awsirsa: HubDriverOptions.AutoApprove: %w", err)
		}
	}
	return h, h.register(options.Registerer)
}

// register registers the metrics
//
//	registration_awsirsa_roles      roles in IAM of clusters that this process has granted
//	registration_awsirsa_max_roles  how many this hub may have
func (h *HubDriver) register(r prometheus.Registerer) error {
	h.gauge = prometheus.NewGauge(prometheus.GaugeOpts{Name: "registration_awsirsa_roles",
		Help: "Roles in AWS IAM of the clusters of this hub."})
	limit := prometheus.NewGauge(prometheus.GaugeOpts{Name: "registration_awsirsa_max_roles",
		Help: "Roles in AWS IAM that this hub may have."})
	limit.Set(float64(h.options.MaxRoles))
	if r == nil {
		return nil
	}
	return errors.Join(r.Register(h.gauge), r.Register(limit))
}

// Name returns "aws-irsa".
func (h *HubDriver) Name() string { return registration.AuthTypeAWS }

// Claim returns the ARN in the cluster's annotations. It refuses a suffix that
// does not match the ARN, and ignores it otherwise.
func (h *HubDriver) Claim(cluster *ocm.ManagedCluster) (string, bool, error) {
	claim, ok, err := Claim(cluster)
	if err != nil || !ok {
		return "", false, err
	}
	managed, err := ParseClusterARN(claim)
	if err != nil {
		return "", false, err
	}
	if err := checkPair(h.hub, managed); err != nil {
		return "", false, err
	}
	suffix, ok := cluster.Annotations[OCMSuffixAnnotation]
	if id := RoleSuffix(h.hub, managed); ok && suffix != id {
		return "", false,
			fmt.Errorf(
				"the annotation %q is %.100q, but cluster %q has the suffix %q on this hub: correct it, and check the hub's ARN on the managed cluster",
				OCMSuffixAnnotation, suffix, claim, id)
	}
	return claim, true, nil
}

// Approves reports whether one of the patterns matches the claimed ARN.
func (h *HubDriver) Approves(_ context.Context, _ *ocm.ManagedCluster, claim string) (bool, error) {
	managed, err := ParseClusterARN(claim)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(h.options.AutoApprove, func(pattern string) bool {
		ok, err := path.Match(pattern, managed.String())
		return ok && err == nil
	}), nil
}

func (h *HubDriver) newGrant(cluster, claim string) (*grant, error) {
	managed, err := ParseClusterARN(claim)
	if err == nil {
		err = checkPair(h.hub, managed)
	}
	if err != nil {
		return nil, err
	}
	return &grant{cluster: cluster, hub: h.hub, managed: managed, roleName: GrantedRoleName(h.hub, managed),
		roleARN: GrantedRoleARN(h.hub, managed)}, nil
}

// Grant implements [registration.HubDriver]. Without drift it makes two calls
// of IAM. With access entries it also makes one call of EKS. It sets its own
// retry delay only for failures that need an edit.
func (h *HubDriver) Grant(ctx context.Context, cluster, claim string) (time.Duration, error) {
	g, err := h.newGrant(cluster, claim)
	if err != nil {
		return 0, err
	}
	err = persist(ctx, func() error {
		created, err := h.ensureRole(ctx, g)
		if err != nil {
			return err
		}
		if err := h.ensureAccess(ctx, g, created); err != nil {
			return err
		}
		return h.binder.bind(ctx, g)
	})
	if errors.Is(err, errFull) || hasCode(err, codeNoPrincipal) {
		return personDelay, err
	}
	return 0, err
}

// Revoke implements [registration.HubDriver]. It removes the binding first,
// because the role alone gives no access.
func (h *HubDriver) Revoke(ctx context.Context, cluster, claim string) error {
	g, err := h.newGrant(cluster, claim)
	if err != nil {
		return err
	}
	err = persist(ctx, func() error {
		if err := h.binder.unbind(ctx, g); err != nil {
			return err
		}
		return h.deleteRole(ctx, g)
	})
	if err == nil {
		h.forget(g)
	}
	return err
}

// reserve counts an existing role, or a role about to be created. It warns when
// few are left, and refuses a role beyond the limit.
func (h *HubDriver) reserve(g *grant, create bool) error {
	h.mu.Lock()
	known := h.roles[g.cluster]
	full := create && !known && len(h.roles) >= h.options.MaxRoles
	if !full {
		h.roles[g.cluster] = true
	}
	n := len(h.roles)
	h.gauge.Set(float64(n))
	h.mu.Unlock()
	if full {
		return fmt.Errorf(
			"%w for cluster %q: it has %d in account %s, and HubDriverOptions.MaxRoles is %d: have the quota of IAM raised, and MaxRoles with it, or remove clusters",
			errFull, g.cluster, n, g.hub.Account, h.options.MaxRoles)
	}
	const share, whole = 4, 5
	near := (h.options.MaxRoles*share + whole - 1) / whole
	if known || n < near || !create && n != near {
		return nil
	}
	object := &ocm.ManagedCluster{TypeMeta: metav1.TypeMeta{APIVersion: ocm.GroupVersion.String(), Kind: "ManagedCluster"},
		ObjectMeta: metav1.ObjectMeta{Name: g.cluster}}
	kubeevent.Record(h.options.Events, object, corev1.EventTypeWarning, "RolesRunningOut", "Register",
		fmt.Sprintf(
			"this hub has %d of at most %d roles in account %s: have the quota of IAM raised, and the hub's limit with it, or remove clusters", n, h.options.MaxRoles, g.hub.Account))
	return nil
}

func (h *HubDriver) forget(g *grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.roles, g.cluster)
	h.gauge.Set(float64(len(h.roles)))
}

// CheckPattern checks a pattern of [HubDriverOptions.AutoApprove]. It refuses
// what can match no ARN, such as a regular expression, and a pattern that
// matches any account. With as many colons as an ARN, no star stands for one.
func CheckPattern(text string) error {
	const account, fields = 4, 6
	parts := strings.Split(text, ":")
	switch {
	case len(parts) != fields:
		return fmt.Errorf("the pattern %q is not one of ARNs: write it like arn:aws:eks:eu-*:123456789012:cluster/prod-*",
			text)
	case strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:/-_*?") != "":
		return fmt.Errorf(
			"the pattern %q can match no ARN: in patterns only * and ? are special, they are not regular expressions", text)
	case strings.ContainsAny(parts[account], "*?"):
		return fmt.Errorf("the pattern %q matches clusters of accounts that are not yours: write out the account", text)
	}
	return nil
}
