//! An autoencoder of Fashion-MNIST, with pictures of what it makes.

use std::path::Path;

use super::models::Vae;
use super::{Config, Metric, Shown, Task};
use crate::data::{DataLoader, FashionMnist, Image, LoaderOptions, TensorDataset};
use crate::error::Result;
use crate::nn::Module;
use crate::random::{fork_rng, manual_seed};
use crate::tensor::Tensor;

/// A [`Vae`] and its images.
pub struct Autoencoder {
    model: Vae,
    loader: DataLoader<(Tensor, Tensor)>,
    test: TensorDataset<(Tensor, Tensor)>,
}

impl Autoencoder {
    /// A network that starts from the default generator, and Fashion-MNIST.
    ///
    /// # Errors
    /// If the data are not there, or memory runs out.
    pub fn fashion_mnist(config: &Config) -> Result<Autoencoder> {
        let (folder, device) = (config.data.as_deref(), config.device);
        let train = FashionMnist::train(folder)?.tensors(device)?;
        Autoencoder::new(train, FashionMnist::test(folder)?.tensors(device)?, config)
    }

    /// A network and images `[n, 1, 28, 28]` to train and test it on; classes are not looked at.
    ///
    /// # Errors
    /// If the batch size is 0, or memory runs out.
    pub fn new(
        train: TensorDataset<(Tensor, Tensor)>,
        test: TensorDataset<(Tensor, Tensor)>,
        config: &Config,
    ) -> Result<Autoencoder> {
        let loader = train.loader(LoaderOptions {
            batch_size: config.batch,
            shuffle: true,
            seed: config.seed,
            workers: 1,
            ..LoaderOptions::default()
        })?;
        Ok(Autoencoder { model: Vae::new(config.device)?, loader, test })
    }

    /// The first test images.
    fn images(&self, count: usize) -> Result<Tensor> {
        let images = &self.test.tensors().0;
        images.narrow(0, 0, count.min(images.dim(0)?))
    }
}

impl Task for Autoencoder {
    fn name(&self) -> String {
        "vae".to_owned()
    }

    fn model(&self) -> &dyn Module {
        &self.model
    }

    fn loader(&self) -> &DataLoader<(Tensor, Tensor)> {
        &self.loader
    }

    fn loss(&self, (images, _): &(Tensor, Tensor)) -> Result<Tensor> {
        self.model.loss(images)
    }

    /// The loss of 2,000 test images, with the same noise each time.
    fn evaluate(&self) -> Result<Metric> {
        let value = fork_rng(|| {
            manual_seed(0);
            self.model.loss(&self.images(2000)?)?.item()
        })?;
        Ok(Metric { name: "loss", value })
    }

    /// `reconstructed.png`: images, and below each what is left of it. `sampled.png`: images of codes
    /// that nobody made an image of.
    fn show(&self, out: Option<&Path>) -> Result<Shown> {
        let Some(out) = out else { return Ok(Shown::default()) };
        let images = self.images(10)?;
        let made = self.model.decode(&self.model.encode(&images)?.mean)?.sigmoid()?;
        let both = [pictures(&images)?, pictures(&made)?].concat();
        let columns = both.len() / 2;
        let codes = fork_rng(|| {
            manual_seed(0);
            Tensor::randn(&[64, Vae::CODE], images.device())
        })?;
        let sampled = pictures(&self.model.decode(&codes)?.sigmoid()?)?;
        let files = vec![out.join("reconstructed.png"), out.join("sampled.png")];
        Image::grid(&both, columns)?.save_png(&files[0])?;
        Image::grid(&sampled, 8)?.save_png(&files[1])?;
        Ok(Shown { text: None, files })
    }
}

/// Pictures of the rows of a tensor of 784 pixels each.
fn pictures(images: &Tensor) -> Result<Vec<Image>> {
    let n = images.dim(0)?;
    images.reshape(&[n, 28, 28])?.unbind(0)?.iter().map(Image::from_tensor).collect()
}
