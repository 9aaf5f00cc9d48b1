//! Classifiers of Fashion-MNIST.

use super::models::{Cnn, Vit, mlp};
use super::{Config, Metric, Task};
use crate::data::{DataLoader, FashionMnist, LoaderOptions, TensorDataset};
use crate::error::Result;
use crate::nn::{Layer, Module};
use crate::ops::Reduction;
use crate::tensor::Tensor;

/// The networks that `genesis train` offers for Fashion-MNIST.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Network {
    /// Fully connected.
    Mlp,
    /// Convolutions.
    Cnn,
    /// A transformer over patches.
    Vit,
}

/// A network, its images, and images to test it on.
pub struct Classifier {
    network: Network,
    model: Box<dyn Layer>,
    loader: DataLoader<(Tensor, Tensor)>,
    test: TensorDataset<(Tensor, Tensor)>,
}

impl Classifier {
    /// A network that starts from the default generator, and Fashion-MNIST. The images are on the
    /// device from the start: all of them take 188 MB.
    ///
    /// # Errors
    /// If the data are not there, or memory runs out.
    pub fn fashion_mnist(network: Network, config: &Config) -> Result<Classifier> {
        let (folder, device) = (config.data.as_deref(), config.device);
        let train = FashionMnist::train(folder)?.tensors(device)?;
        Classifier::new(network, train, FashionMnist::test(folder)?.tensors(device)?, config)
    }

    /// A network and images `[n, 1, 28, 28]` with classes `[n]` to train and test it on.
    ///
    /// # Errors
    /// If the batch size is 0, or memory runs out.
    pub fn new(
        network: Network,
        train: TensorDataset<(Tensor, Tensor)>,
        test: TensorDataset<(Tensor, Tensor)>,
        config: &Config,
    ) -> Result<Classifier> {
        let model: Box<dyn Layer> = match network {
            Network::Mlp => Box::new(mlp(config.device)?),
            Network::Cnn => Box::new(Cnn::new(config.device)?),
            Network::Vit => Box::new(Vit::new(config.device)?),
        };
        // Beside threads that compute, one that makes batches would only take their time.
        let workers = usize::from(config.device.is_cuda());
        let loader = train.loader(LoaderOptions {
            batch_size: config.batch,
            shuffle: true,
            seed: config.seed,
            workers,
            ..LoaderOptions::default()
        })?;
        Ok(Classifier { network, model, loader, test })
    }
}

impl Task for Classifier {
    fn name(&self) -> String {
        format!("fashion-mnist {:?}", self.network).to_lowercase()
    }

    fn model(&self) -> &dyn Module {
        self.model.as_module()
    }

    fn loader(&self) -> &DataLoader<(Tensor, Tensor)> {
        &self.loader
    }

    fn loss(&self, (images, classes): &(Tensor, Tensor)) -> Result<Tensor> {
        self.model.forward(images)?.cross_entropy(classes, Reduction::Mean)
    }

    fn evaluate(&self) -> Result<Metric> {
        Ok(Metric { name: "accuracy", value: evaluate(&*self.model, &self.test)? })
    }
}

/// The share of images whose most likely class is the right one.
///
/// # Errors
/// If a launch fails.
pub fn evaluate(model: &dyn Layer, test: &TensorDataset<(Tensor, Tensor)>) -> Result<f64> {
    let options = LoaderOptions { batch_size: 500, workers: 1, ..LoaderOptions::default() };
    let (mut right, mut all) = (0.0, 0);
    for batch in test.clone().loader(options)?.iter()? {
        let (images, classes) = batch?;
        let hits = model.forward(&images)?.argmax(-1)?.eq(&classes)?;
        right += hits.to_dtype(crate::DType::F32)?.sum()?.item()?;
        all += classes.numel();
    }
    Ok(right / all.max(1) as f64)
}
