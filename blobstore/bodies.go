package blobstore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"
	"unicode"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/sluice-go/sluice/driver"
	"github.com/sluice-go/sluice/internal/memory"
)

// ReferenceProperty is the application property, or the header in Kafka, of a message whose body is
// a reference to a blob. Its value is "1", the version of the reference's format.
const ReferenceProperty = "sluice-claim-check"

const referenceVersion = "1"

// ErrBody is wrapped by the errors of [Bodies.Fetch] that concern one event only: its reference is
// invalid, or the blob is missing, too large or damaged. All other errors concern the storage
// account.
var ErrBody = errors.New("claim check")

// BodiesConfig has the settings of [Bodies]. The zero value is ready to use with a URL that has a
// signature.
type BodiesConfig struct {
	// Config is as for a store. By default, a request has up to four tries of 30 seconds each.
	Config
	// MaxBytes bounds the size of a body that is fetched. Default: 64 MiB.
	MaxBytes int64
}

// Bodies keeps bodies that are too large for a message in a container of Azure Blob Storage, while
// the message has a reference to the blob (claim check). It is safe for concurrent use.
//
// A blob's name is the SHA-256 hash of the body, so a body that is stored again, for example in a
// retry, takes no more storage. Storing it again sets the time of the blob's last modification, so
// that a lifecycle rule that deletes blobs by their age keeps it as long as the newest message.
// Nothing else deletes blobs: docs/claimcheck.md says how to set such a rule, and describes the
// format.
type Bodies struct {
	client *container.Client
	prefix string
	most   int64
}

// NewBodies connects to a container as [Connect] does. It sends nothing, and the container must
// exist.
func NewBodies(where string, cfg *BodiesConfig) (*Bodies, error) {
	var c BodiesConfig
	if cfg != nil {
		c = *cfg
	}
	if len(c.Prefix) > maxPrefix || strings.HasPrefix(c.Prefix, "/") {
		return nil, fmt.Errorf("prefix of blob names: at most %d bytes, and no slash at the start", maxPrefix)
	}
	if c.MaxBytes < 0 {
		return nil, fmt.Errorf("largest body of %d bytes: must not be negative", c.MaxBytes)
	}
	if retry := &c.Client.Retry; retry.MaxRetries == 0 && retry.TryTimeout == 0 && retry.RetryDelay == 0 {
		retry.MaxRetries, retry.RetryDelay, retry.MaxRetryDelay, retry.TryTimeout = 3, 200*time.Millisecond, 2*time.Second, 30*time.Second
	}
	client, err := Connect(where, &c.Config)
	if err != nil {
		return nil, err
	}
	return &Bodies{client: client, prefix: c.Prefix, most: cmp.Or(c.MaxBytes, 64<<20)}, nil
}

// Check checks that the container exists and can be read.
func (b *Bodies) Check(ctx context.Context) error {
	_, err := b.client.NewBlobClient(b.prefix+strings.Repeat("0", 2*sha256.Size)).GetProperties(ctx, nil)
	if err == nil || bloberror.HasCode(err, bloberror.BlobNotFound) {
		return nil
	}
	return fmt.Errorf("container %s: %w", place(b.client), safeError(err))
}

// reference is the body of a message whose own body is in a blob, as the field claim_check of an
// object.
type reference struct {
	Container string `json:"container"` // its URL, without a signature
	Blob      string `json:"blob"`      // its name in the container
	Size      int64  `json:"size"`      // in bytes
	SHA256    string `json:"sha256"`    // in hexadecimal digits
}

// Put stores a body. It returns what the message has in its place, and the properties that the
// message needs besides its own.
func (b *Bodies) Put(ctx context.Context, body []byte) (inPlace []byte, properties map[string]any, err error) {
	hash := sha256.Sum256(body)
	c := &reference{Container: place(b.client), Size: int64(len(body)), SHA256: hex.EncodeToString(hash[:])}
	c.Blob = b.prefix + c.SHA256
	if _, err := b.client.NewBlockBlobClient(c.Blob).Upload(ctx, streaming.NopCloser(bytes.NewReader(body)), &blockblob.UploadOptions{}); err != nil {
		return nil, nil, fmt.Errorf("store a body of %d bytes in %s: %w", len(body), c.Container, safeError(err))
	}
	inPlace, err = json.Marshal(map[string]*reference{"claim_check": c})
	return inPlace, map[string]any{ReferenceProperty: referenceVersion}, err
}

// IsReference reports whether an event's body is in a blob.
func IsReference(e *driver.Event) bool {
	_, is := e.Properties[ReferenceProperty]
	return is
}

// maxReference bounds a reference, in bytes.
const maxReference = 8 << 10

// Fetch returns a copy of the event with its whole body, or e itself if that is no reference. The
// body has the size and the hash of the reference, or there is an error, see [ErrBody]. The
// container is always that of b, whatever the reference says.
//
// In a handler or a function that makes records, the body is charged to the Memory of the
// consumer's Config.
func (b *Bodies) Fetch(ctx context.Context, e *driver.Event) (*driver.Event, error) {
	if !IsReference(e) {
		return e, nil
	}
	if v := e.Properties[ReferenceProperty]; v != referenceVersion {
		return nil, fmt.Errorf("%w: version %.20q is not known: update this program", ErrBody, fmt.Sprint(v))
	}
	c, err := b.parse(e.Body)
	if err != nil {
		return nil, err
	}
	if err := memory.Grow(ctx, c.Size+1); err != nil {
		return nil, err
	}
	body, err := b.download(ctx, c.Blob, c.Size)
	switch {
	case bloberror.HasCode(err, bloberror.BlobNotFound):
		return nil, fmt.Errorf("%w: blob %q is not in %s (the reference names %q): restore it if it was deleted, or correct the container, and retry the dead letter; a lifecycle rule must keep blobs longer than the log keeps events",
			ErrBody, c.Blob, place(b.client), c.Container)
	case err != nil:
		return nil, fmt.Errorf("fetch blob %q from %s: %w", c.Blob, place(b.client), safeError(err))
	}
	if hash := sha256.Sum256(body); int64(len(body)) != c.Size || hex.EncodeToString(hash[:]) != strings.ToLower(c.SHA256) {
		return nil, fmt.Errorf("%w: blob %q in %s is not the body that was stored: it has another size or hash than the reference", ErrBody, c.Blob, place(b.client))
	}
	whole := *e
	whole.Body = body
	whole.Properties = maps.Clone(e.Properties)
	delete(whole.Properties, ReferenceProperty)
	whole.Headers = nil
	for _, h := range e.Headers {
		if h.Name != ReferenceProperty {
			whole.Headers = append(whole.Headers, h)
		}
	}
	return &whole, nil
}

// parse reads a reference.
func (b *Bodies) parse(text []byte) (*reference, error) {
	var m struct {
		ClaimCheck *reference `json:"claim_check"`
	}
	if len(text) > maxReference || json.Unmarshal(text, &m) != nil || m.ClaimCheck == nil || !m.ClaimCheck.named() || m.ClaimCheck.Size < 0 {
		return nil, fmt.Errorf("%w: the body is not a reference to a blob: it has the property %s, but was not made by a claim check", ErrBody, ReferenceProperty)
	}
	if c := m.ClaimCheck; c.Size > b.most {
		return nil, fmt.Errorf("%w: blob %q has %d bytes: the limit is %d", ErrBody, c.Blob, c.Size, b.most)
	}
	return m.ClaimCheck, nil
}

// named reports whether the blob has a name as Put gives it: a prefix and the hash. Azure Storage
// refuses some other names, and such a refusal must not look like one of the account.
func (c *reference) named() bool {
	hash, err := hex.DecodeString(c.SHA256)
	return err == nil && len(hash) == sha256.Size && len(c.Blob) <= maxName && strings.HasSuffix(strings.ToLower(c.Blob), strings.ToLower(c.SHA256)) && !strings.ContainsFunc(c.Blob, unicode.IsControl)
}

// download reads a blob of a size, and one byte more if it is larger.
func (b *Bodies) download(ctx context.Context, name string, size int64) ([]byte, error) {
	got, err := b.client.NewBlobClient(name).DownloadStream(ctx, nil)
	if err != nil {
		return nil, err
	}
	from := got.NewRetryReader(ctx, nil)
	defer from.Close()
	if n := got.ContentLength; n != nil { // the reference may be a lie
		size = min(size, *n)
	}
	body := make([]byte, size+1)
	n, err := io.ReadFull(from, body)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return body[:n], err
}

// MostBytes returns the size in bytes of the largest body that is fetched.
func (b *Bodies) MostBytes() int64 { return b.most }
