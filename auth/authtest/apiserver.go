package authtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/applyconfigurations"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TokenRequestInfo is what a TokenRequest asked for.
type TokenRequestInfo struct {
	Audiences []string
	Lifetime  time.Duration
}

// Refuse has TokenRequests fail with what the function returns, if it returns an error; nil ends that. Forbidden makes
// the error of an API server whose RBAC lacks the rule.
func (i *Issuer) Refuse(refuse func(sa corev1.ServiceAccount, request TokenRequestInfo) error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.refuse = refuse
}

// TokenRequests returns how many tokens were asked for.
func (i *Issuer) TokenRequests() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.requests
}

// Forbidden returns the API server's refusal of a TokenRequest to a user who has no right to it.
func Forbidden(user string, sa client.ObjectKey) error {
	words := fmt.Sprintf(`User %q cannot create resource "serviceaccounts/token" in API group "" in the namespace %q`, user, sa.Namespace)
	return apierrors.NewForbidden(corev1.Resource("serviceaccounts"), sa.Name, errors.New(words))
}

// coreScheme is made once: to register the kinds takes longer than most of what a test does with a client.
var coreScheme = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		panic(err) // the scheme of a release of k8s.io/api is consistent
	}
	return scheme
})

// coreConverter is what the fake client makes anew each time if it is not given one.
var coreConverter = sync.OnceValue(func() managedfields.TypeConverter { return applyconfigurations.NewTypeConverter(coreScheme()) })

// Client returns a client of an API server in memory that holds the given objects (core/v1 kinds) and issues tokens of
// ServiceAccounts. It is controller-runtime's fake client, which lists what it does not imitate; in addition, objects
// get a UID when they are created.
func (i *Issuer) Client(objs ...client.Object) client.WithWatch {
	for n, obj := range objs {
		copied, ok := obj.DeepCopyObject().(client.Object)
		if ok && copied.GetUID() == "" {
			copied.SetUID(types.UID(uuid.NewString()))
			objs[n] = copied
		}
	}
	return fake.NewClientBuilder().WithScheme(coreScheme()).WithTypeConverters(coreConverter()).WithObjects(objs...).
		WithInterceptorFuncs(interceptor.Funcs{Create: createWithUID, SubResourceCreate: i.createSubResource}).
		Build()
}

func createWithUID(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
	if obj.GetUID() == "" {
		obj.SetUID(types.UID(uuid.NewString()))
	}
	return c.Create(ctx, obj, opts...)
}

func (i *Issuer) createSubResource(ctx context.Context, c client.Client, name string, obj, sub client.Object,
	opts ...client.SubResourceCreateOption) error {
	request, ok := sub.(*authenticationv1.TokenRequest)
	if name != "token" || !ok {
		return c.SubResource(name).Create(ctx, obj, sub, opts...)
	}
	sa := &corev1.ServiceAccount{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(obj), sa); err != nil {
		return err
	}
	return i.issue(ctx, c, sa, request)
}

const (
	minLifetime     = 10 * time.Minute
	defaultLifetime = time.Hour
)

// issue does what the API server does with a TokenRequest.
func (i *Issuer) issue(ctx context.Context, c client.Client, sa *corev1.ServiceAccount, request *authenticationv1.TokenRequest) error {
	lifetime := defaultLifetime
	if s := request.Spec.ExpirationSeconds; s != nil {
		lifetime = time.Duration(*s) * time.Second
	}
	i.mu.Lock()
	i.requests++
	refuse := i.refuse
	i.mu.Unlock()
	if refuse != nil {
		if err := refuse(*sa, TokenRequestInfo{Audiences: request.Spec.Audiences, Lifetime: lifetime}); err != nil {
			return err
		}
	}
	if err := validateRequest(sa, request, lifetime); err != nil {
		return err
	}
	if len(request.Spec.Audiences) == 0 {
		request.Spec.Audiences = []string{i.url} // the API server's own
	}
	claims := i.Claims(sa, request.Spec.Audiences, lifetime)
	if err := bind(ctx, c, claims, sa, request.Spec.BoundObjectRef); err != nil {
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
func bind(ctx context.Context, c client.Client, claims map[string]any, sa *corev1.ServiceAccount, ref *authenticationv1.BoundObjectReference) error {
	if ref == nil {
		return nil
	}
	key := client.ObjectKey{Namespace: sa.Namespace, Name: ref.Name}
	var object client.Object
	var claim string
	switch ref.Kind {
	case "Pod":
		pod := &corev1.Pod{}
		if err := c.Get(ctx, key, pod); err != nil {
			return err
		}
		if pod.Spec.ServiceAccountName != sa.Name {
			return apierrors.NewBadRequest(fmt.Sprintf(
				"cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", sa.Name))
		}
		object, claim = pod, "pod"
	case "Secret":
		secret := &corev1.Secret{}
		if err := c.Get(ctx, key, secret); err != nil {
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
