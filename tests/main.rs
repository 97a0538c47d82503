//! One test binary: linked once. Each module says what belongs there.

mod ai_toolkit; // buckets, cache names, jobs and staleness of ai-toolkit
mod backoff; // batches and tiles through encoders that run out of memory
mod buckets; // golden and property tests of the bucket rules
mod cases; // the small input folders with expected results, through the built binary
mod cli; // transcripts of the command line: exit code, stdout, stderr
mod containers; // files written by numpy and safetensors, damaged files
mod decode; // golden and hazard files through the decoders
mod devices; // several encoders at one queue
mod diffusion_pipe; // buckets of diffusion-pipe
mod hazards; // awkward files and folders through the scan
mod layering; // imports hold to the picture in docs/ARCHITECTURE.md
mod listed; // images that a description names one by one
mod made_weights; // tiny encoders whose weights follow from names
mod memory; // what an encode keeps resident, against the formula
mod musubi; // its buckets, and what a bake leaves for it
mod networks; // latents of Flux.2, Wan 2.1 and HunyuanImage 2.1
mod onetrainer; // buckets of OneTrainer
mod rebuild; // change one thing, count what is encoded
mod resize; // golden pictures of OpenCV and Pillow
mod sd_scripts; // artefacts beside those that sd-scripts wrote itself
mod simpletuner; // its pixels, dataset lists, and what a bake leaves for it
mod store; // the door, the index, lookups under damage
mod support; // temporary datasets and the binary under test
mod targets; // several trainers at once
mod tiling; // tiles against one piece, and what --tile accepts
mod tokenizers; // ids of transformers, and fast engines that count what the reference counts
mod tokens; // captions and their windows, training rows, bad rows, what is remembered
mod torch_container; // .pt files of torch, hostile ones, and ours before torch
mod traps; // what sd-scripts takes for a right cache though it is none
mod vae; // golden latents of all families and key styles
