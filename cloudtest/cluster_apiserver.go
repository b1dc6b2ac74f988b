package cloudtest

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	k8stesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Refuse makes a TokenRequest fail if the function returns an error. Nil
// removes the function. To imitate an API server whose RBAC lacks the rule,
// return [apierrors.NewForbidden]. ExpirationSeconds is never nil.
func (i *Issuer) Refuse(refuse func(sa corev1.ServiceAccount, request authenticationv1.TokenRequestSpec) error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.refuse = refuse
}

// TokenRequests returns the number of TokenRequests so far, including refused
// ones.
func (i *Issuer) TokenRequests() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.requests
}

// Wrap returns a client that issues tokens of the ServiceAccounts in c, a fake
// client with the schemes, indexes and interceptors that the test needs. Its
// scheme has to know core/v1. An object that is created without a UID gets one.
// Objects that the builder of c received keep their UIDs.
func (i *Issuer) Wrap(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{Create: createWithUID, SubResourceCreate: i.createSubResource})
}

// PrependTo makes a clientset of k8s.io/client-go/kubernetes/fake issue tokens
// of its ServiceAccounts. It runs before the clientset's other reactors.
func (i *Issuer) PrependTo(clientset interface {
	PrependReactor(verb, resource string, reaction k8stesting.ReactionFunc)
	Tracker() k8stesting.ObjectTracker
}) {
	clientset.PrependReactor("create", "serviceaccounts/token",
		func(action k8stesting.Action) (bool, runtime.Object, error) {
			create, ok := action.(k8stesting.CreateActionImpl)
			if !ok {
				return false, nil, nil
			}
			request, ok := create.Object.DeepCopyObject().(*authenticationv1.TokenRequest)
			if !ok {
				return false, nil, nil
			}
			return true, request, i.issue(client.ObjectKey{Namespace: create.Namespace, Name: create.Name}, request,
				trackerLookup(clientset.Tracker()))
		})
}

// lookup reads an object of core/v1 by its resource, such as "pods".
type lookup func(resource string, key client.ObjectKey, into client.Object) error

func trackerLookup(tracker k8stesting.ObjectTracker) lookup {
	return func(resource string, key client.ObjectKey, into client.Object) error {
		found, err := tracker.Get(corev1.SchemeGroupVersion.WithResource(resource), key.Namespace, key.Name)
		if err != nil {
			return err
		}
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(found)
		if err != nil {
			return err
		}
		return runtime.DefaultUnstructuredConverter.FromUnstructured(fields, into)
	}
}

func createWithUID(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
	setUID(obj)
	return c.Create(ctx, obj, opts...)
}

func setUID(obj client.Object) {
	if obj.GetUID() == "" {
		obj.SetUID(types.UID(uuid.NewString()))
	}
}

func (i *Issuer) createSubResource(ctx context.Context, c client.Client, name string, obj, sub client.Object,
	opts ...client.SubResourceCreateOption) error {
	request, ok := sub.(*authenticationv1.TokenRequest)
	if name != "token" || !ok {
		return c.SubResource(name).Create(ctx, obj, sub, opts...)
	}
	return i.issue(client.ObjectKeyFromObject(obj), request,
		func(_ string, key client.ObjectKey, into client.Object) error {
			return c.Get(ctx, key, into)
		})
}

const (
	minLifetime     = 10 * time.Minute
	defaultLifetime = time.Hour
)

// issue fills in the status of a TokenRequest, as the API server does.
func (i *Issuer) issue(key client.ObjectKey, request *authenticationv1.TokenRequest, get lookup) error {
	sa := &corev1.ServiceAccount{}
	if err := get("serviceaccounts", key, sa); err != nil {
		return err
	}
	if request.Spec.ExpirationSeconds == nil {
		request.Spec.ExpirationSeconds = new(int64(defaultLifetime / time.Second))
	}
	lifetime := time.Duration(*request.Spec.ExpirationSeconds) * time.Second
	i.mu.Lock()
	i.requests++
	refuse := i.refuse
	i.mu.Unlock()
	if refuse != nil {
		if err := refuse(*sa, *request.Spec.DeepCopy()); err != nil {
			return err
		}
	}
	if err := validateRequest(sa, request, lifetime); err != nil {
		return err
	}
	if len(request.Spec.Audiences) == 0 {
		request.Spec.Audiences = []string{i.url} // the default of the API server
	}
	claims := i.Claims(sa, request.Spec.Audiences, lifetime)
	if err := bind(claims, sa, get, request.Spec.BoundObjectRef); err != nil {
		return err
	}
	token, err := i.Sign(claims)
	if err != nil {
		return err
	}
	request.Status.Token = token
	request.Status.ExpirationTimestamp = metav1.NewTime(i.now().Add(lifetime).Truncate(time.Second))
	return nil
}

func validateRequest(sa *corev1.ServiceAccount, request *authenticationv1.TokenRequest, lifetime time.Duration) error {
	kind := schema.GroupKind{Group: "authentication.k8s.io", Kind: "TokenRequest"}
	if lifetime < minLifetime {
		return apierrors.NewInvalid(kind, "", field.ErrorList{field.Invalid(field.NewPath("spec", "expirationSeconds"),
			int64(lifetime/time.Second), "may not specify a duration less than 10 minutes")})
	}
	if request.UID != "" && request.UID != sa.UID {
		return apierrors.NewConflict(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, sa.Name, fmt.Errorf(
			"the UID in the token request (%s) does not match the UID of the service account (%s)", request.UID, sa.UID))
	}
	return nil
}

// bind adds the claims of a token that is bound to a pod or a secret.
func bind(claims map[string]any, sa *corev1.ServiceAccount, get lookup,
	ref *authenticationv1.BoundObjectReference) error {
	if ref == nil {
		return nil
	}
	key := client.ObjectKey{Namespace: sa.Namespace, Name: ref.Name}
	var object client.Object
	var claim string
	switch ref.Kind {
	case "Pod":
		pod := &corev1.Pod{}
		if err := get("pods", key, pod); err != nil {
			return err
		}
		if pod.Spec.ServiceAccountName != sa.Name {
			return apierrors.NewBadRequest(fmt.Sprintf(
				"cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", sa.Name))
		}
		object, claim = pod, "pod"
	case "Secret":
		secret := &corev1.Secret{}
		if err := get("secrets", key, secret); err != nil {
			return err
		}
		object, claim = secret, "secret"
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s %s", ref.APIVersion, ref.Kind))
	}
	if ref.UID != "" && ref.UID != object.GetUID() {
		return apierrors.NewConflict(schema.GroupResource{Resource: claim + "s"}, ref.Name, fmt.Errorf(
			"the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID))
	}
	if private, ok := claims["kubernetes.io"].(map[string]any); ok {
		private[claim] = map[string]any{"name": ref.Name, "uid": string(object.GetUID())}
	}
	return nil
}
