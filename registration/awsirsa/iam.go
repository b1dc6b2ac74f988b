package awsirsa

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/smithy-go"

	"github.com/workloadid/workloadid/internal/pause"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

// IAM is the part of *iam.Client that the hub calls.
type IAM interface {
	GetRole(context.Context, *iam.GetRoleInput, ...func(*iam.Options)) (*iam.GetRoleOutput, error)
	CreateRole(context.Context, *iam.CreateRoleInput, ...func(*iam.Options)) (*iam.CreateRoleOutput, error)
	UpdateAssumeRolePolicy(context.Context, *iam.UpdateAssumeRolePolicyInput,
		...func(*iam.Options)) (*iam.UpdateAssumeRolePolicyOutput, error)
	TagRole(context.Context, *iam.TagRoleInput, ...func(*iam.Options)) (*iam.TagRoleOutput, error)
	DeleteRole(context.Context, *iam.DeleteRoleInput, ...func(*iam.Options)) (*iam.DeleteRoleOutput, error)
	GetRolePolicy(context.Context, *iam.GetRolePolicyInput, ...func(*iam.Options)) (*iam.GetRolePolicyOutput, error)
	PutRolePolicy(context.Context, *iam.PutRolePolicyInput, ...func(*iam.Options)) (*iam.PutRolePolicyOutput, error)
	DeleteRolePolicy(context.Context, *iam.DeleteRolePolicyInput,
		...func(*iam.Options)) (*iam.DeleteRolePolicyOutput, error)
}

// Codes of errors. The SDK has types for most, but the codes serve answers of
// both services alike.
const (
	codeNoRole      = "NoSuchEntity"
	codeRoleExists  = "EntityAlreadyExists"
	codeRoleChanges = "EntityTemporarilyUnmodifiable"
	codeConcurrent  = "ConcurrentModification"
	codeNoPrincipal = "MalformedPolicyDocument"
	codeRoleInUse   = "DeleteConflict"
	codeQuota       = "LimitExceeded"
	codeNoEntry     = "ResourceNotFoundException"
	codeEntryExists = "ResourceInUseException"
	codeNoRoleYet   = "InvalidParameterException"
	codeWrongMode   = "InvalidRequestException"
	codeServerFails = "ServerException"
)

func hasCode(err error, codes ...string) bool {
	var api smithy.APIError
	return errors.As(err, &api) && slices.Contains(codes, api.ErrorCode())
}

// isTransient reports whether an error is transient: throttling, a concurrent
// change, or a service that does not see yet that the hub has just created or
// deleted an object.
func isTransient(err error) bool {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return false
	}
	_, throttled := retry.DefaultThrottleErrorCodes[api.ErrorCode()]
	return throttled || hasCode(err, codeNoRole, codeRoleExists, codeRoleChanges, codeRoleInUse, codeConcurrent,
		codeNoRoleYet, codeEntryExists, codeServerFails)
}

const (
	maxAttempts     = 9
	minDelay        = 250 * time.Millisecond
	maxDelay        = 5 * time.Second
	personDelay     = 10 * time.Minute // longest delay until the next retry of a failure that a person has to correct
	revocationReads = 3
	revocationDelay = time.Second
	roleDescription = "Made by the hub for one managed cluster. The hub repairs and deletes it."
)

// persist repeats an attempt while its error is transient, up to about 20 s.
// IAM shows a new role to itself and to EKS only after some time. Attempts are
// idempotent.
func persist(ctx context.Context, try func() error) error {
	delay := minDelay
	for attempt := 1; ; attempt++ {
		err := try()
		if err == nil || attempt == maxAttempts || !isTransient(err) ||
			pause.For(ctx, delay/2+rand.N(delay/2)) != nil { //nolint:gosec // spreads load
			return err
		}
		delay = min(2*delay, maxDelay)
	}
}

// explain adds the account and a remedy.
func (g *grant) explain(what string, err error) error {
	remedy := "the hub tries again"
	switch {
	case hasCode(err, codeNoPrincipal):
		remedy = fmt.Sprintf("create the role %q of the managed cluster first, with its trust policy and access policy",
			AgentRoleARN(g.hub, g.managed))
	case hasCode(err, codeQuota):
		remedy = fmt.Sprintf("have the quota of roles of account %s raised, or remove clusters", g.hub.Account)
	case hasCode(err, "AccessDenied", "AccessDeniedException", "UnauthorizedOperation"):
		remedy = "give the hub's role all permissions of its access policy"
	case hasCode(err, codeRoleInUse):
		remedy = "detach from the role what the hub did not attach"
	case hasCode(err, codeWrongMode):
		remedy = fmt.Sprintf("set the authentication mode of the hub %q to API_AND_CONFIG_MAP", g.hub.String())
	}
	return &failure{fmt.Sprintf("%s of role %q for cluster %q: %s; %s", what, g.roleARN, g.cluster, text(err), remedy),
		err}
}

// failure is an error of AWS without its request ID, because each request ID
// would change the condition.
type failure struct {
	message string
	err     error
}

func (f *failure) Error() string { return f.message }
func (f *failure) Unwrap() error { return f.err }

func text(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return redact.Text(api.ErrorCode() + ": " + api.ErrorMessage())
	}
	return transport.Message(err)
}

// errFull means that the hub has reached its limit of roles.
var errFull = errors.New("the hub creates no role")

// errForeign means that this hub did not create an existing object for this
// cluster.
var errForeign = errors.New("it is not of this hub and this cluster")

func (g *grant) foreign(what string, tags map[string]string) error {
	if hub, cluster := tags[tagOwnerHub], tags[tagOwnerCluster]; hub == g.hub.String() && cluster != "" &&
		cluster != g.cluster {
		return fmt.Errorf(
			"%w: the %s %q is of cluster %q already, which has the ARN %q or one of the same name and account in another region. Names of roles do not hold the region: join with the right ARN, or deny that cluster first",
			errForeign, what, g.roleARN, cluster, g.managed.String())
	} else if hub != "" && hub != g.hub.String() {
		return fmt.Errorf(
			"%w: the %s %q belongs to the hub %q, whose name and account are the same: use a hub with another name",
			errForeign, what, g.roleARN, hub)
	}
	return fmt.Errorf(
		"%w: the %s %q has a path, or lacks the tags %s=%s and %s=%s: remove it if nothing needs it, then the hub makes its own",
		errForeign, what, g.roleARN, tagOwnerHub, g.hub.String(), tagOwnerCluster, g.cluster)
}

// contains reports whether the tags include all of want.
func contains(tags, want map[string]string) bool {
	for key, value := range want {
		if got, ok := tags[key]; !ok || got != value {
			return false
		}
	}
	return true
}

func tagsOf(role *iamtypes.Role) map[string]string {
	tags := map[string]string{}
	for _, t := range role.Tags {
		tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	return tags
}

func (g *grant) roleTags() []iamtypes.Tag {
	all := g.owner()
	maps.Copy(all, Tags(g.hub, g.managed))
	var tags []iamtypes.Tag
	for _, key := range slices.Sorted(maps.Keys(all)) {
		tags = append(tags, iamtypes.Tag{Key: aws.String(key), Value: aws.String(all[key])})
	}
	return tags
}

// ownRole refuses a role without the tags of this hub and cluster.
func (g *grant) ownRole(role *iamtypes.Role) error {
	if aws.ToString(role.Arn) != g.roleARN || !contains(tagsOf(role), g.owner()) {
		return g.foreign("role", tagsOf(role))
	}
	return nil
}

// ensureRole creates the role, or repairs trust policy and tags. One call
// creates the role with its owner, so no crash leaves a role without an owner.
func (h *HubDriver) ensureRole(ctx context.Context, g *grant) (created bool, err error) {
	role, err := h.getRole(ctx, g)
	if err != nil {
		return false, err
	}
	trust := trustPolicy(g.hub, g.managed).json()
	if role == nil {
		if err := h.reserve(g, true); err != nil {
			return false, err
		}
		out, err := h.options.IAM.CreateRole(ctx,
			&iam.CreateRoleInput{RoleName: &g.roleName, Tags: g.roleTags(), Description: aws.String(roleDescription),
				AssumeRolePolicyDocument: aws.String(string(trust))})
		if err != nil || out.Role == nil {
			h.forget(g)
			return false, g.explain("creation", orEmpty(err))
		}
		g.roleID = aws.ToString(out.Role.RoleId)
		return true, nil
	}
	if err := g.ownRole(role); err != nil {
		return false, err
	}
	g.roleID = aws.ToString(role.RoleId)
	if err := h.reserve(g, false); err != nil {
		return false, err
	}
	if !samePolicy(trust, aws.ToString(role.AssumeRolePolicyDocument)) {
		_, err := h.options.IAM.UpdateAssumeRolePolicy(ctx,
			&iam.UpdateAssumeRolePolicyInput{RoleName: &g.roleName, PolicyDocument: aws.String(string(trust))})
		if err != nil {
			return false, g.explain("repair of the trust policy", err)
		}
	}
	if !contains(tagsOf(role), Tags(g.hub, g.managed)) {
		if _, err := h.options.IAM.TagRole(ctx, &iam.TagRoleInput{RoleName: &g.roleName, Tags: g.roleTags()}); err != nil {
			return false, g.explain("repair of the tags", err)
		}
	}
	return false, nil
}

// getRole returns nil if the role does not exist.
func (h *HubDriver) getRole(ctx context.Context, g *grant) (*iamtypes.Role, error) {
	out, err := h.options.IAM.GetRole(ctx, &iam.GetRoleInput{RoleName: &g.roleName})
	switch {
	case hasCode(err, codeNoRole):
		return nil, nil
	case err != nil || out.Role == nil:
		return nil, g.explain("lookup", orEmpty(err))
	}
	return out.Role, nil
}

// orEmpty returns err, or an error for an empty answer.
func orEmpty(err error) error {
	if err == nil {
		err = errors.New("the answer of AWS is empty: check that no proxy answers for it")
	}
	return err
}

// ensureAccess gives the role its access policy, the only inline policy, under
// the name of the role.
func (h *HubDriver) ensureAccess(ctx context.Context, g *grant, created bool) error {
	access := accessPolicy(g.hub).json()
	if !created {
		out, err := h.options.IAM.GetRolePolicy(ctx, &iam.GetRolePolicyInput{RoleName: &g.roleName, PolicyName: &g.roleName})
		switch {
		case err == nil && samePolicy(access, aws.ToString(out.PolicyDocument)):
			return nil
		case err != nil && !hasCode(err, codeNoRole):
			return g.explain("lookup of the access policy", err)
		}
	}
	_, err := h.options.IAM.PutRolePolicy(ctx,
		&iam.PutRolePolicyInput{RoleName: &g.roleName, PolicyName: &g.roleName, PolicyDocument: aws.String(string(access))})
	if err != nil {
		return g.explain("access policy", err)
	}
	return nil
}

// deleteRole deletes the role if this hub owns it. It asks several times for a
// missing role. A role that was created just before a crash may not show yet,
// and would stay behind.
func (h *HubDriver) deleteRole(ctx context.Context, g *grant) error {
	role, err := h.getRole(ctx, g)
	for look := 1; role == nil && err == nil && look < revocationReads; look++ {
		if err := pause.For(ctx, revocationDelay); err != nil {
			return err
		}
		role, err = h.getRole(ctx, g)
	}
	if err != nil || role == nil || g.ownRole(role) != nil {
		return err
	}
	_, err = h.options.IAM.DeleteRolePolicy(ctx,
		&iam.DeleteRolePolicyInput{RoleName: &g.roleName, PolicyName: &g.roleName})
	if err == nil || hasCode(err, codeNoRole) {
		_, err = h.options.IAM.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: &g.roleName})
	}
	if err != nil && !hasCode(err, codeNoRole) {
		return g.explain("deletion", err)
	}
	return nil
}
