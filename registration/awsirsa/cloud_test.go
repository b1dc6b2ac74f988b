package awsirsa_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/smithy-go"

	"github.com/workloadid/workloadid/registration/awsirsa"
)

const (
	hubARN     = "arn:aws:eks:eu-central-1:111111111111:cluster/hub"
	managedARN = "arn:aws:eks:eu-west-1:222222222222:cluster/shop"
)

// cloud is IAM of the hub's account and EKS with the hub. It refuses what AWS
// refuses. Its state is what survives a crash.
type cloud struct {
	mu      sync.Mutex
	calls   []string
	writes  int
	roles   map[string]*role
	entries map[string]*entry
	made    int

	delay      time.Duration    // of each call
	dieAfter   int              // call after which every answer is lost; 0: none
	failures   map[string]error // by action, once each
	readLag    int              // reads for which a new role does not show
	eksLag     int              // creations of entries for which EKS does not know a new role
	configMode bool             // the cluster's authentication mode is CONFIG_MAP
	noAgent    bool             // the managed cluster's role does not exist
}

type role struct {
	id, arn, trust string
	tags           map[string]string
	policies       map[string]string
	hidden         int
}

type entry struct {
	roleID, user, kind string
	groups             []string
	tags               map[string]string
}

func newCloud() *cloud {
	return &cloud{roles: map[string]*role{}, entries: map[string]*entry{}, failures: map[string]error{}}
}

var errDead = errors.New("the process is gone")

func apiError(code, message string) error {
	return &smithy.GenericAPIError{Code: code, Message: message}
}

// call takes its time, then counts, and fails on demand. It leaves the cloud
// locked.
func (c *cloud) call(ctx context.Context, action string) error {
	if c.delay > 0 {
		select {
		case <-time.After(c.delay):
		case <-ctx.Done():
		}
	}
	c.mu.Lock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.isDead() {
		return errDead
	}
	c.calls = append(c.calls, action)
	if !strings.HasPrefix(action, "Get") && !strings.HasPrefix(action, "Describe") {
		c.writes++
	}
	if err := c.failures[action]; err != nil {
		delete(c.failures, action)
		return err
	}
	return nil
}

// isDead reports whether the hub has died. It needs the lock.
func (c *cloud) isDead() bool { return c.dieAfter > 0 && len(c.calls) >= c.dieAfter }

func (c *cloud) dead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isDead()
}

// record adds what is no call of AWS.
func (c *cloud) record(call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, call)
}

func answer[T any](c *cloud, out T, err error) (T, error) {
	var none T
	if err == nil && c.isDead() {
		return none, errDead
	}
	if err != nil {
		return none, err
	}
	return out, nil
}

func (c *cloud) role(name *string) (*role, error) {
	r := c.roles[aws.ToString(name)]
	if r == nil {
		return nil,
			&iamtypes.NoSuchEntityException{
				Message: aws.String(fmt.Sprintf("The role with name %s cannot be found.", aws.ToString(name)))}
	}
	return r, nil
}

var roleName = regexp.MustCompile(`^[\w+=,.@-]{1,64}$`)

// checkDocument refuses what is no policy.
func checkDocument(text *string, principal bool) error {
	var document struct {
		Version   string
		Statement []map[string]any
	}
	if json.Unmarshal([]byte(aws.ToString(text)), &document) != nil || document.Version != "2012-10-17" ||
		len(document.Statement) == 0 {
		return &iamtypes.MalformedPolicyDocumentException{Message: aws.String("Syntax errors in policy.")}
	}
	for _, s := range document.Statement {
		if _, ok := s["Principal"]; ok != principal {
			return &iamtypes.MalformedPolicyDocumentException{
				Message: aws.String("Policy document should not specify a principal.")}
		}
	}
	return nil
}

var tagKey = regexp.MustCompile(`^[\w .:/=+@-]{1,128}$`)

func checkTags(tags map[string]string) error {
	for key, value := range tags {
		if !tagKey.MatchString(key) || len(value) > 256 || value != "" && !tagKey.MatchString(value[:min(len(value), 128)]) {
			return &iamtypes.InvalidInputException{Message: aws.String("tag " + key)}
		}
	}
	return nil
}

func tagMap(tags []iamtypes.Tag) map[string]string {
	m := map[string]string{}
	for _, t := range tags {
		m[*t.Key] = *t.Value
	}
	return m
}

func (r *role) output(name string) *iamtypes.Role {
	out := &iamtypes.Role{RoleName: &name, Arn: &r.arn, RoleId: &r.id,
		AssumeRolePolicyDocument: aws.String(strings.ReplaceAll(url.QueryEscape(r.trust), "+", "%20"))}
	for _, key := range slices.Sorted(maps.Keys(r.tags)) {
		out.Tags = append(out.Tags, iamtypes.Tag{Key: aws.String(key), Value: aws.String(r.tags[key])})
	}
	return out
}

func (c *cloud) GetRole(ctx context.Context, in *iam.GetRoleInput,
	_ ...func(*iam.Options)) (*iam.GetRoleOutput, error) {
	defer c.mu.Unlock()
	if err := c.call(ctx, "GetRole"); err != nil {
		return nil, err
	}
	r, err := c.role(in.RoleName)
	if err == nil && r.hidden > 0 {
		r.hidden--
		err = &iamtypes.NoSuchEntityException{}
	}
	if err != nil {
		return answer[*iam.GetRoleOutput](c, nil, err)
	}
	return answer(c, &iam.GetRoleOutput{Role: r.output(*in.RoleName)}, nil)
}

// newRole is a role that the hub or another party makes.
func (c *cloud) newRole(name string, tags map[string]string, trust string) *role {
	c.made++
	r := &role{id: fmt.Sprintf("AROA%d", c.made), arn: "arn:aws:iam::111111111111:role/" + name, trust: trust, tags: tags,
		policies: map[string]string{}}
	c.roles[name] = r
	return r
}

func (c *cloud) CreateRole(ctx context.Context, in *iam.CreateRoleInput,
	_ ...func(*iam.Options)) (*iam.CreateRoleOutput, error) {
	defer c.mu.Unlock()
	if err := c.call(ctx, "CreateRole"); err != nil {
		return nil, err
	}
	if err := errors.Join(checkDocument(in.AssumeRolePolicyDocument, true), checkTags(tagMap(in.Tags))); err != nil {
		return nil, err
	}
	switch {
	case !roleName.MatchString(*in.RoleName):
		return nil, &iamtypes.InvalidInputException{Message: aws.String("role name")}
	case c.noAgent:
		return nil, &iamtypes.MalformedPolicyDocumentException{Message: aws.String("Invalid principal in policy")}
	case c.roles[*in.RoleName] != nil:
		return nil, &iamtypes.EntityAlreadyExistsException{}
	}
	r := c.newRole(*in.RoleName, tagMap(in.Tags), *in.AssumeRolePolicyDocument)
	r.hidden = c.readLag
	return answer(c, &iam.CreateRoleOutput{Role: r.output(*in.RoleName)}, nil)
}

func (c *cloud) UpdateAssumeRolePolicy(ctx context.Context, in *iam.UpdateAssumeRolePolicyInput,
	_ ...func(*iam.Options)) (*iam.UpdateAssumeRolePolicyOutput, error) {
	defer c.mu.Unlock()
	if err := c.call(ctx, "UpdateAssumeRolePolicy"); err != nil {
		return nil, err
	}
	r, err := c.role(in.RoleName)
	if err = errors.Join(err, checkDocument(in.PolicyDocument, true)); err == nil {
		r.trust = *in.PolicyDocument
	}
	return answer(c, &iam.UpdateAssumeRolePolicyOutput{}, err)
}

func (c *cloud) TagRole(ctx context.Context, in *iam.TagRoleInput,
	_ ...func(*iam.Options)) (*iam.TagRoleOutput, error) {
	defer c.mu.Unlock()
	if err := c.call(ctx, "TagRole"); err != nil {
		return nil, err
	}
	r, err := c.role(in.RoleName)
	if err = errors.Join(err, checkTags(tagMap(in.Tags))); err == nil {
		maps.Copy(r.tags, tagMap(in.Tags))
	}
	return answer(c, &iam.TagRoleOutput{}, err)
}

func (c *cloud) DeleteRole(ctx context.Context, in *iam.DeleteRoleInput,
	_ ...func(*iam.Options)) (*iam.DeleteRoleOutput, error) {
	defer c.mu.Unlock()
	if err := c.call(ctx, "DeleteRole"); err != nil {
		return nil, err
	}
	r, err := c.role(in.RoleName)
	if err == nil && len(r.policies) > 0 {
		err = &iamtypes.DeleteConflictException{Message: aws.String("Cannot delete entity, must delete policies first.")}
	}
	if err == nil {
		delete(c.roles, *in.RoleName)
	}
	return answer(c, &iam.DeleteRoleOutput{}, err)
}

func (c *cloud) GetRolePolicy(ctx context.Context, in *iam.GetRolePolicyInput,
	_ ...func(*iam.Options)) (*iam.GetRolePolicyOutput, error) {
	defer c.mu.Unlock()
	if err := c.call(ctx, "GetRolePolicy"); err != nil {
		return nil, err
	}
	r, err := c.role(in.RoleName)
	if err != nil {
		return nil, err
	}
	p, ok := r.policies[*in.PolicyName]
	if !ok {
		return nil, &iamtypes.NoSuchEntityException{}
	}
	return answer(c, &iam.GetRolePolicyOutput{PolicyDocument: aws.String(url.PathEscape(p))}, nil)
}

func (c *cloud) PutRolePolicy(ctx context.Context, in *iam.PutRolePolicyInput,
	_ ...func(*iam.Options)) (*iam.PutRolePolicyOutput, error) {
	defer c.mu.Unlock()
	if err := c.call(ctx, "PutRolePolicy"); err != nil {
		return nil, err
	}
	r, err := c.role(in.RoleName)
	if err = errors.Join(err, checkDocument(in.PolicyDocument, false)); err == nil {
		r.policies[*in.PolicyName] = *in.PolicyDocument
	}
	return answer(c, &iam.PutRolePolicyOutput{}, err)
}

func (c *cloud) DeleteRolePolicy(ctx context.Context, in *iam.DeleteRolePolicyInput,
	_ ...func(*iam.Options)) (*iam.DeleteRolePolicyOutput, error) {
	defer c.mu.Unlock()
	if err := c.call(ctx, "DeleteRolePolicy"); err != nil {
		return nil, err
	}
	r, err := c.role(in.RoleName)
	if err == nil && r.policies[*in.PolicyName] == "" {
		err = &iamtypes.NoSuchEntityException{}
	}
	if err == nil {
		delete(r.policies, *in.PolicyName)
	}
	return answer(c, &iam.DeleteRolePolicyOutput{}, err)
}

// entryOf checks the cluster and finds the entry of a principal.
func (c *cloud) entryOf(cluster, principal *string) (*entry, error) {
	if c.configMode {
		return nil,
			&ekstypes.InvalidRequestException{
				Message: aws.String(
					"The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP] to perform this operation.")}
	}
	if aws.ToString(cluster) != "hub" || c.entries[aws.ToString(principal)] == nil {
		return nil, &ekstypes.ResourceNotFoundException{Message: aws.String("The specified principalArn could not be found.")}
	}
	return c.entries[*principal], nil
}

func (c *cloud) DescribeAccessEntry(ctx context.Context, in *eks.DescribeAccessEntryInput,
	_ ...func(*eks.Options)) (*eks.DescribeAccessEntryOutput, error) {
	defer c.mu.Unlock()
	if err := c.call(ctx, "DescribeAccessEntry"); err != nil {
		return nil, err
	}
	e, err := c.entryOf(in.ClusterName, in.PrincipalArn)
	if err != nil {
		return answer[*eks.DescribeAccessEntryOutput](c, nil, err)
	}
	return answer(c,
		&eks.DescribeAccessEntryOutput{AccessEntry: &ekstypes.AccessEntry{ClusterName: in.ClusterName,
			PrincipalArn:     in.PrincipalArn,
			KubernetesGroups: slices.Clone(e.groups), Tags: maps.Clone(e.tags), Type: &e.kind, Username: aws.String(e.user)}},
		nil)
}

func checkEntry(groups []string, user *string) error {
	for _, name := range append(slices.Clone(groups), aws.ToString(user)) {
		if strings.HasPrefix(name, "system:") {
			return &ekstypes.InvalidParameterException{
				Message: aws.String("The kubernetes group name must not start with system:")}
		}
	}
	return nil
}

func (c *cloud) CreateAccessEntry(ctx context.Context, in *eks.CreateAccessEntryInput,
	_ ...func(*eks.Options)) (*eks.CreateAccessEntryOutput, error) {
	defer c.mu.Unlock()
	if err := c.call(ctx, "CreateAccessEntry"); err != nil {
		return nil, err
	}
	if _, err := c.entryOf(in.ClusterName, in.PrincipalArn); err == nil {
		return nil, &ekstypes.ResourceInUseException{}
	}
	if err := errors.Join(checkEntry(in.KubernetesGroups, in.Username), checkTags(in.Tags)); err != nil {
		return nil, err
	}
	name := (*in.PrincipalArn)[strings.LastIndexByte(*in.PrincipalArn, '/')+1:]
	r := c.roles[name]
	if r == nil || c.eksLag > 0 {
		c.eksLag--
		return nil,
			&ekstypes.InvalidParameterException{Message: aws.String("The specified principalArn is invalid: invalid principal.")}
	}
	c.entries[*in.PrincipalArn] = &entry{roleID: r.id, groups: slices.Clone(in.KubernetesGroups),
		tags: maps.Clone(in.Tags), user: aws.ToString(in.Username), kind: aws.ToString(in.Type)}
	return answer(c, &eks.CreateAccessEntryOutput{}, nil)
}

func (c *cloud) UpdateAccessEntry(ctx context.Context, in *eks.UpdateAccessEntryInput,
	_ ...func(*eks.Options)) (*eks.UpdateAccessEntryOutput, error) {
	defer c.mu.Unlock()
	if err := c.call(ctx, "UpdateAccessEntry"); err != nil {
		return nil, err
	}
	e, err := c.entryOf(in.ClusterName, in.PrincipalArn)
	if err = errors.Join(err, checkEntry(in.KubernetesGroups, in.Username)); err == nil {
		e.groups, e.user = slices.Clone(in.KubernetesGroups), aws.ToString(in.Username)
	}
	return answer(c, &eks.UpdateAccessEntryOutput{}, err)
}

func (c *cloud) DeleteAccessEntry(ctx context.Context, in *eks.DeleteAccessEntryInput,
	_ ...func(*eks.Options)) (*eks.DeleteAccessEntryOutput, error) {
	defer c.mu.Unlock()
	if err := c.call(ctx, "DeleteAccessEntry"); err != nil {
		return nil, err
	}
	_, err := c.entryOf(in.ClusterName, in.PrincipalArn)
	if err == nil {
		delete(c.entries, *in.PrincipalArn)
	}
	return answer(c, &eks.DeleteAccessEntryOutput{}, err)
}

// reset counts from here on.
func (c *cloud) reset() { c.calls, c.writes, c.dieAfter = nil, 0, 0 }

// groups are those that a role has on the hub: an entry of a role that was
// deleted gives none.
func (c *cloud) groups(name string) []string {
	r, e := c.roles[name], c.entries["arn:aws:iam::111111111111:role/"+name]
	if r == nil || e == nil || e.roleID != r.id {
		return nil
	}
	return e.groups
}

var (
	_ awsirsa.IAM = (*cloud)(nil)
	_ awsirsa.EKS = (*cloud)(nil)
)
