//! Dropout: what it zeroes, what it keeps, and that nothing happens outside of training.

use genesis::nn::{
    AlphaDropout, Dropout, Dropout1d, Dropout2d, Dropout3d, FeatureAlphaDropout, Layer, Module,
};
use genesis::random::thread_rng;
use genesis::{Device, Result, Tensor};

const CPU: Device = Device::Cpu;

/// The output for ones of a shape.
fn of_ones(layer: &dyn Layer, shape: &[usize]) -> Result<Vec<f64>> {
    let _own = thread_rng(11);
    layer.forward(&Tensor::ones(shape, CPU)?)?.to_f64_vec()
}

#[test]
fn elements_are_zeroed_and_the_rest_scaled() -> Result<()> {
    let values = of_ones(&Dropout::new(0.25), &[4000])?;
    let zeros = values.iter().filter(|&&v| v == 0.0).count();
    assert!((900..1100).contains(&zeros), "{zeros}");
    assert!(values.iter().all(|&v| v == 0.0 || (v - 4.0 / 3.0).abs() < 1e-6));
    Ok(())
}

#[test]
fn whole_channels_are_zeroed() -> Result<()> {
    let layers: [(Box<dyn Layer>, &[usize]); 4] = [
        (Box::new(Dropout1d::new(0.5)), &[20, 10, 6]),
        (Box::new(Dropout2d::new(0.5)), &[20, 10, 2, 3]),
        (Box::new(Dropout2d::new(0.5)), &[200, 2, 3]),
        (Box::new(Dropout3d::new(0.5)), &[20, 10, 1, 2, 3]),
    ];
    for (layer, shape) in layers {
        let values = of_ones(layer.as_ref(), shape)?;
        let channels: Vec<&[f64]> = values.chunks(6).collect();
        assert!(channels.iter().all(|channel| channel.iter().all(|&v| v == channel[0])));
        let zeros = channels.iter().filter(|channel| channel[0] == 0.0).count();
        assert!((70..130).contains(&zeros), "{shape:?}: {zeros}");
        layer.eval();
        assert!(of_ones(layer.as_ref(), shape)?.iter().all(|&v| v == 1.0));
    }
    let error = Dropout2d::new(0.5).forward(&Tensor::ones(&[3], CPU)?).expect_err("no channels");
    assert_eq!(error.to_string(), "dropout: needs [N, C, ..] or [C, ..] with 2 more axes, got [3]");
    Ok(())
}

#[test]
fn alpha_dropout_keeps_mean_and_variance() -> Result<()> {
    let _own = thread_rng(5);
    let x = Tensor::randn(&[200, 50, 4], CPU)?;
    let layers: [Box<dyn Layer>; 2] =
        [Box::new(AlphaDropout::new(0.3)), Box::new(FeatureAlphaDropout::new(0.3))];
    for layer in layers {
        let y = layer.forward(&x)?;
        let (mean, var) = (y.mean()?.item()?, y.var_dims(&[0, 1, 2], 1.0, false)?.item()?);
        assert!(mean.abs() < 0.03 && (var - 1.0).abs() < 0.05, "{mean} {var}");
        layer.eval();
        assert_eq!(layer.forward(&x)?.to_f64_vec()?, x.to_f64_vec()?);
    }
    Ok(())
}
