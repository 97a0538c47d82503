"""Makes `photos/` from the photographs inside the scikit-image wheel (see LICENSES.md).

    pip install scikit-image pillow numpy
    python sample_data/make_photos.py

The set is small but mixed the way real folders are: landscape, portrait, square, panorama, some larger than
an SDXL bucket and some smaller, grayscale, WebP, a PNG with soft alpha, and a JPEG that only EXIF turns upright.
Written with scikit-image 0.26.0 and Pillow 13.0.0; another codec version may change bytes, not pictures.
"""
import io
from pathlib import Path

import numpy as np
import skimage
from PIL import Image, ImageCms, ImageDraw

SOURCE = Path(skimage.__file__).parent / "data"
PHOTOS = Path(__file__).parent / "photos"
EXIF_ORIENTATION = 0x0112  # TIFF 6.0 tag 274


def photo(name):
    """One source photograph as sRGB or gray pixels, without its metadata (the rocket comes in Adobe RGB)."""
    with Image.open(SOURCE / name) as image:
        if "icc_profile" in image.info:
            profile = ImageCms.ImageCmsProfile(io.BytesIO(image.info["icc_profile"]))
            image = ImageCms.profileToProfile(image, profile, ImageCms.createProfile("sRGB"))
        return Image.fromarray(np.asarray(image))


def enlarged(image, width, height):
    """A copy at another size, so that the set holds pictures above a trainer's target area."""
    return image.resize((width, height), Image.Resampling.LANCZOS)


def cup_cut_out(image):
    """The cup and its saucer as RGBA: alpha is an ellipse around the saucer, drawn at 4x and scaled down for soft edges."""
    scale = 4
    mask = Image.new("L", (image.width * scale, image.height * scale), 0)
    ImageDraw.Draw(mask).ellipse([side * scale for side in (76, 14, 482, 390)], fill=255)
    cut = image.copy()
    cut.putalpha(mask.resize(image.size, Image.Resampling.BOX))
    return cut.crop((60, 0, 500, 400))


def save(image, name, caption, **options):
    """Writes one picture and, unless `caption` is None, the text beside it."""
    path = PHOTOS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)
    if caption is not None:
        path.with_suffix(".txt").write_text(caption + "\n", encoding="utf-8")


def main():
    jpeg = {"quality": 88, "subsampling": "4:2:0"}
    astronaut, chelsea, coffee = photo("astronaut.png"), photo("chelsea.png"), photo("coffee.png")
    hubble, rocket, camera = photo("hubble_deep_field.jpg"), photo("rocket.jpg"), photo("camera.png")

    save(astronaut, "astronaut.jpg", "portrait of a smiling astronaut in an orange space suit, flag and shuttle model behind her", **jpeg)
    save(enlarged(astronaut.crop((60, 0, 340, 420)), 840, 1260), "astronaut-close.jpg",
         "close portrait of a smiling astronaut in an orange space suit", progressive=True, **jpeg)
    save(enlarged(rocket, 1536, 1024), "launch-pad.jpg", "a rocket on its launch pad at dusk, between lattice towers, with bright lights below", **jpeg)
    # Stored lying on its side; orientation 6 tells a viewer to turn it 90 degrees clockwise.
    upright = rocket.crop((180, 60, 460, 427))
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = 6
    save(upright.transpose(Image.Transpose.ROTATE_90), "rocket-phone.jpg", "an upright photo of a white rocket against a dark blue evening sky", exif=exif, **jpeg)
    save(hubble, "galaxies.jpg", "hundreds of small coloured galaxies on a black sky", **jpeg)
    save(hubble.crop((0, 420, 1000, 670)), "galaxies-panorama.jpg", "a wide strip of black sky with many small coloured galaxies", **jpeg)
    save(camera, "photographer.png", "black and white photo of a man in a dark coat looking through a camera on a tripod", optimize=True)
    save(photo("brick.png"), "bricks.jpg", "gray photo of a brick wall seen at an angle", quality=85)
    save(coffee, "coffee.webp", "an espresso in a red and white cup on a wooden table, seen from above", quality=88, method=6)
    save(cup_cut_out(coffee), "coffee-cut-out.png", "a red and white espresso cup on its saucer, cut out, on a transparent background", optimize=True)
    save(chelsea, "cats/chelsea.jpg", "close-up of a tabby cat with green eyes", **jpeg)
    save(chelsea.crop((30, 0, 330, 300)), "cats/chelsea-face.png", "the face of a tabby cat looking to the right", optimize=True)
    save(chelsea.resize((180, 120), Image.Resampling.LANCZOS), "cats/thumbnail.jpg", None, **jpeg)


if __name__ == "__main__":
    main()
