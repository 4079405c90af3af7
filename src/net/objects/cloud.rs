//! Buckets and containers of S3, Google Cloud Storage and Azure Blob Storage, over this program's own HTTP client.

use super::{Draft, Expected, FetchedObject, MAX_LISTED, ObjectError};
use crate::base::secret::shortened;
use crate::net::client;
use futures_util::StreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{HttpClient, HttpConnector};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path as Key;
use object_store::{
    BackoffConfig, ClientConfigKey, ClientOptions, Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload, RetryConfig,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// A larger file is uploaded in parts of this many bytes. S3 needs at least 5 MiB.
const PART: u64 = 8 << 20;
/// Limit of parts of a file, below that of S3.
const MAX_PARTS: u64 = 9_000;
/// Retries of a request that failed temporarily.
const RETRIES: usize = 6;
/// Time after which a failing request is not retried any more.
const RETRIED_FOR: Duration = Duration::from_secs(90);
/// The longest pause between two retries.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// The longest error message of a service that is shown, in characters.
const MAX_SAID: usize = 600;
/// Variables that name another server than the vendor's own.
const ENDPOINTS: [&str; 8] = [
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_ENDPOINT",
    "AZURITE_BLOB_STORAGE_URL",
    "GOOGLE_BASE_URL",
    "GOOGLE_STORAGE_BASE_URL",
];

/// One bucket or container.
#[derive(Clone)]
pub(super) struct Bucket {
    store: Arc<dyn ObjectStore>,
}

/// Omits the settings of the library, which contain credentials.
impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.store)
    }
}

/// Gives the library this program's HTTP client, with its TLS settings and proxies.
#[derive(Debug)]
struct OurClient {
    /// The server that the environment names.
    endpoint: Option<String>,
}

impl HttpConnector for OurClient {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let allows_http = options.get_config_value(&ClientConfigKey::AllowHttp).as_deref() == Some("true");
        let client = client::for_objects(self.endpoint.as_deref(), allows_http).map_err(|error| Error::Generic {
            store: "HTTP",
            source: Box::new(error),
        })?;
        Ok(HttpClient::new(client))
    }
}

impl Bucket {
    pub(super) fn open(scheme: &str, bucket: &str, environment: &[(String, String)]) -> Result<Self, ObjectError> {
        let retry = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(200),
                max_backoff: LONGEST_PAUSE,
                base: 2.0,
            },
            max_retries: RETRIES,
            retry_timeout: RETRIED_FOR,
        };
        let vendor = match scheme {
            "s3" => "AWS_",
            "gs" => "GOOGLE_",
            _ => "AZ",
        };
        let endpoint = ENDPOINTS
            .iter()
            .filter(|name| name.starts_with(vendor))
            .find_map(|name| environment.iter().find(|(known, _)| known == name))
            .map(|(_, value)| value.clone());
        let connector = OurClient { endpoint };
        let settings = environment
            .iter()
            .filter(|(name, _)| name.starts_with(vendor))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.as_str()));
        let store: object_store::Result<Arc<dyn ObjectStore>> = match scheme {
            "s3" => settings
                .filter_map(|(name, value)| Some((name.parse().ok()?, value)))
                .fold(AmazonS3Builder::new(), |builder, (key, value)| {
                    builder.with_config(key, value)
                })
                .with_bucket_name(bucket)
                .with_retry(retry)
                .with_http_connector(connector)
                .build()
                .map(|store| Arc::new(store) as Arc<dyn ObjectStore>),
            "gs" => settings
                .filter_map(|(name, value)| Some((name.parse().ok()?, value)))
                .fold(GoogleCloudStorageBuilder::new(), |builder, (key, value)| {
                    builder.with_config(key, value)
                })
                .with_bucket_name(bucket)
                .with_retry(retry)
                .with_http_connector(connector)
                .build()
                .map(|store| Arc::new(store) as Arc<dyn ObjectStore>),
            _ => settings
                .filter_map(|(name, value)| Some((name.parse().ok()?, value)))
                .fold(MicrosoftAzureBuilder::new(), |builder, (key, value)| {
                    builder.with_config(key, value)
                })
                .with_container_name(bucket)
                .with_retry(retry)
                .with_http_connector(connector)
                .build()
                .map(|store| Arc::new(store) as Arc<dyn ObjectStore>),
        };
        match store {
            Ok(store) => Ok(Self { store }),
            Err(error) => Err(ObjectError::Address(format!(
                "{scheme}://{bucket} cannot be used: {}; set the variables that the vendor's own tools read ({})",
                error_message(&error),
                match scheme {
                    "s3" => "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION",
                    "gs" => "GOOGLE_APPLICATION_CREDENTIALS",
                    _ => "AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY",
                }
            ))),
        }
    }

    pub(super) async fn put(&self, key: &str, bytes: Vec<u8>) -> Result<(), String> {
        let done = self.store.put(&Key::from(key), PutPayload::from(bytes)).await;
        done.map(|_| ()).map_err(|error| error_message(&error))
    }

    pub(super) async fn create(&self, key: &str, bytes: Vec<u8>) -> Result<bool, String> {
        let payload = PutPayload::from(bytes);
        match self
            .store
            .put_opts(&Key::from(key), payload, PutMode::Create.into())
            .await
        {
            Ok(_) => Ok(true),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(false),
            Err(error) => Err(error_message(&error)),
        }
    }

    pub(super) async fn put_file(&self, key: &str, path: &Path, size: u64) -> Result<(), String> {
        let local = |error: std::io::Error| format!("{}: {error}", path.display());
        let mut file = tokio::fs::File::open(path).await.map_err(local)?;
        if size <= PART {
            let mut bytes = Vec::new();
            (&mut file)
                .take(PART + 1)
                .read_to_end(&mut bytes)
                .await
                .map_err(local)?;
            if bytes.len() as u64 <= PART {
                return self.put(key, bytes).await;
            }
            return Err(format!("{} grew while it was read", path.display()));
        }
        let part = PART.max(size.div_ceil(MAX_PARTS));
        let mut upload = self
            .store
            .put_multipart(&Key::from(key))
            .await
            .map_err(|error| error_message(&error))?;
        let sent = async {
            loop {
                let mut bytes = Vec::new();
                (&mut file).take(part).read_to_end(&mut bytes).await.map_err(local)?;
                if bytes.is_empty() {
                    return Ok(());
                }
                upload
                    .put_part(PutPayload::from(bytes))
                    .await
                    .map_err(|error| error_message(&error))?;
            }
        }
        .await;
        if let Err(why) = sent {
            // Uploaded parts would be billed until a lifecycle rule of the bucket removes them. The first error is the
            // one to report.
            let _ = upload.abort().await;
            return Err(why);
        }
        upload
            .complete()
            .await
            .map(|_| ())
            .map_err(|error| error_message(&error))
    }

    pub(super) async fn get(&self, key: &str, most: u64) -> Result<Option<Vec<u8>>, String> {
        let found = match self.store.get(&Key::from(key)).await {
            Err(Error::NotFound { .. }) => return Ok(None),
            found => found.map_err(|error| error_message(&error))?,
        };
        let too_long = || format!("it has more than {most} bytes");
        if found.meta.size > most {
            return Err(too_long());
        }
        let (mut bytes, mut stream) = (Vec::new(), found.into_stream());
        while let Some(piece) = stream.next().await {
            bytes.extend_from_slice(&piece.map_err(|error| error_message(&error))?);
            if bytes.len() as u64 > most {
                return Err(too_long());
            }
        }
        Ok(Some(bytes))
    }

    pub(super) async fn exists(&self, key: &str) -> Result<bool, String> {
        match self.store.head(&Key::from(key)).await {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error_message(&error)),
        }
    }

    pub(super) async fn fetch(&self, key: &str, to: &Path, expected: Expected<'_>) -> Result<FetchedObject, String> {
        let found = match self.store.get(&Key::from(key)).await {
            Err(Error::NotFound { .. }) => return Ok(FetchedObject::Missing),
            found => found.map_err(|error| error_message(&error))?,
        };
        if found.meta.size != expected.bytes {
            return Ok(FetchedObject::Other(found.meta.size));
        }
        let (mut draft, mut stream) = (Draft::new(to)?, found.into_stream());
        while let Some(piece) = stream.next().await {
            if !draft.add(&piece.map_err(|error| error_message(&error))?, expected)? {
                return Ok(FetchedObject::Other(draft.bytes));
            }
        }
        draft.end(to, expected)
    }

    pub(super) async fn list(&self, key: &str) -> Result<Vec<String>, String> {
        let prefix = Key::from(key);
        let (mut keys, mut stream) = (Vec::new(), self.store.list(Some(&prefix)));
        while let Some(found) = stream.next().await {
            let location = found.map_err(|error| error_message(&error))?.location;
            let parts = location.prefix_match(&prefix).into_iter().flatten();
            let parts: Vec<String> = parts.map(|part| part.as_ref().to_owned()).collect();
            keys.push(parts.join("/"));
            if keys.len() > MAX_LISTED {
                return Err(format!("there are more than {MAX_LISTED} objects"));
            }
        }
        Ok(keys)
    }

    pub(super) async fn directories(&self, key: &str) -> Result<Vec<String>, String> {
        let prefix = Key::from(key);
        let listed = self
            .store
            .list_with_delimiter(Some(&prefix))
            .await
            .map_err(|error| error_message(&error))?;
        let names = listed.common_prefixes.iter();
        Ok(names.filter_map(|key| key.filename().map(str::to_owned)).collect())
    }

    pub(super) async fn delete(&self, key: &str) -> Result<(), String> {
        match self.store.delete(&Key::from(key)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error_message(&error)),
        }
    }
}

/// The message of an error in one line, without queries of URLs, which may contain signatures.
fn error_message(error: &Error) -> String {
    use std::error::Error as _;
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = inner.source();
    }
    let words = text.split_whitespace().map(|word| match word.split_once('?') {
        Some((address, _)) if address.contains("://") => address,
        _ => word,
    });
    let line = words.collect::<Vec<_>>().join(" ");
    shortened(&line, MAX_SAID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_hold_no_signatures() {
        let error = Error::Generic {
            store: "MicrosoftAzure",
            source: "GET https://a.blob.core.windows.net/c/p?sv=1&sig=SECRET\nfailed".into(),
        };
        let text = error_message(&error);
        assert!(text.contains("https://a.blob.core.windows.net/c/p failed"), "{text}");
        assert!(!text.contains("SECRET") && !text.contains('\n'), "{text}");
    }

    #[test]
    fn what_is_missing_is_said_with_its_variables() {
        let Err(ObjectError::Address(why)) = Bucket::open("az", "box", &[]) else {
            panic!("an account is needed");
        };
        assert!(why.contains("AZURE_STORAGE_ACCOUNT_NAME"), "{why}");
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let named = [
            variable("AWS_ACCESS_KEY_ID", "k"),
            variable("AWS_SECRET_ACCESS_KEY", "s3cr3t-s3cr3t"),
        ];
        let bucket = Bucket::open("s3", "box", &named).unwrap();
        assert!(!format!("{bucket:?}").contains("s3cr3t"));
    }
}
