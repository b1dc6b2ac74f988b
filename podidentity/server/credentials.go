package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

// minimumLifetime is a little more than the 35 minutes that proxies have left
// when they renew, so a renewal brings new credentials.
const minimumLifetime = 36 * time.Minute

// renewalPatience is the time that a caller waits for the renewal of
// credentials that are still valid.
const renewalPatience = 5 * time.Second

// Keys of the session tags that the server sets.
const (
	tagNamespace      = "kubernetes-namespace"
	tagServiceAccount = "kubernetes-service-account"
	tagPodName        = "kubernetes-pod-name"
	tagPodUID         = "kubernetes-pod-uid"
	tagCluster        = "cluster"
)

// ownIdentityError reports that AWS accepts no identity of the server itself.
// No edit of a binding changes that.
type ownIdentityError struct{ error }

func (e ownIdentityError) Unwrap() error { return e.error }

// credentials returns the cached credentials of a pod, or assumes the role of
// the binding.
func (s *Server) credentials(ctx context.Context, b *v1alpha1.IAMBinding, p pod,
	minimum time.Duration) (*aws.Token, error) {
	defer s.forgetLate(ctx, b)
	object := cache.InvolvedObject{Kind: seriesKind, Namespace: b.Namespace, Name: b.Name, Operation: seriesOperation}
	opts := append(slices.Clone(s.options.AuthOptions), auth.WithCache(s.options.Cache, object),
		aws.WithAssumeRole(s.role(b, p)), aws.WithSessionDuration(b.Spec.AWS.Duration()))

	renewal, cancel := context.WithTimeout(ctx, renewalPatience)
	defer cancel()
	token, err := auth.GetAccessToken(renewal, s.provider, append(opts, auth.WithMinimumLifetime(minimum))...)
	if err != nil && renewal.Err() != nil {
		token, err = auth.GetAccessToken(ctx, s.provider, opts...)
	}
	switch {
	case err == nil:
		return aws.FromToken(token)
	case s.provider.IsOwnIdentityError(err), s.provider.RefusesPrevious(err):
		return nil, ownIdentityError{err}
	}
	return nil, s.forTenant(err, b)
}

// forTenant replaces the remedy for a role that does not trust the server. The
// new one addresses the author of the binding.
func (s *Server) forTenant(err error, b *v1alpha1.IAMBinding) error {
	var known *auth.Error
	if !errors.As(err, &known) || known.Code != "AccessDenied" {
		return err
	}
	told := *known // the cache shares the error
	told.Remedy = fmt.Sprintf(
		"let the trust policy of role %q allow sts:AssumeRole and sts:TagSession to the server's role, for the session name %q and the tag %s %q",
		b.Spec.AWS.RoleARN, SessionName(s.options.Cluster, b.Namespace, b.Spec.ServiceAccountRef.Name), tagCluster,
		s.options.Cluster)
	return &told
}

// role describes the session of a pod. The server's tags replace the binding's.
func (s *Server) role(b *v1alpha1.IAMBinding, p pod) aws.AssumeRole {
	tags := make(map[string]string, len(b.Spec.AWS.SessionTags)+5)
	for key, value := range b.Spec.AWS.SessionTags {
		tags[key] = string(value)
	}
	tags[tagNamespace] = p.namespace
	tags[tagServiceAccount] = p.serviceAccount
	tags[tagPodName] = p.name
	tags[tagPodUID] = string(p.uid)
	tags[tagCluster] = s.options.Cluster
	return aws.AssumeRole{
		RoleARN:     b.Spec.AWS.RoleARN,
		SessionName: SessionName(s.options.Cluster, p.namespace, p.serviceAccount),
		ExternalID:  b.Spec.AWS.ExternalID,
		Policy:      b.Spec.AWS.SessionPolicy,
		Tags:        tags,
	}
}

func isOwnIdentity(err error) bool {
	var own ownIdentityError
	return errors.As(err, &own)
}

// isRefused reports whether AWS, or a check before AWS, has refused
// permanently.
func isRefused(err error) bool {
	return !isOwnIdentity(err) && (errors.Is(err, auth.ErrDenied) || errors.Is(err, auth.ErrMisconfigured))
}
