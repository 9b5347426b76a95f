use super::*;
use crate::Flags;

fn hex<const N: usize>(text: &str) -> [u8; N] {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    assert!(rest.is_empty() && pairs.len() == N, "{} digits", text.len());
    let digit = |c: u8| char::from(c).to_digit(16).unwrap() as u8;
    std::array::from_fn(|n| digit(pairs[n][0]) << 4 | digit(pairs[n][1]))
}

/// Metadata of real providers, made by FreeBSD, with their passphrases: the test vectors of the
/// GELI format in John the Ripper (Dhiru Kholia and others). Key length, iterations, salt, both
/// slots, passphrase.
const REAL: &[(u16, i32, &str, &str, &str)] = &[
    (
        128,
        256,
        "31700bceaad80bc02f27644572288e765bd9356528f2a0eeef8144d8c1381a0da7ab32ec2570b254e57218924defaa0e233a55de818d8e97ae8c28cb85bc2842",
        "a55f6782b63a048a3c39fec977e98c6387d6c64cf5be427cd450ecd9f5294834754f058edf3b62f64f3ba7b07ac1d769df17dcd6464330970e55f5c580885cde2d7bd544cd7946e3f9a47f3643f03687504f38ed7745024fd5039043e41a9f57cd238787c8dea0c32be72e82e6a20d3094a7a524d2cf36cc47b71bc663782e7891db3fb5c68ec4c29ac7cb19b2f9b157f69faceec4ed858b46d916a370f2b2c7fd5fb15bb45c72bd6da02de37094c59758ab9e3980f6f82ce178c5e050fd1737bf8bf8c00116d055e273b3ea7fa93aa96baade62815ca1e99639909059b5f09c34ddd7052b6a1384fc5908265dbda25c63efa473146674e39b765e1dcb4f85f6dea081f84f95b97897e1634e44120967808b2377f417befded2d4366c7ba1de28f973fb01d5627817b53a43f214ae82b1db1c3a5424fb8ae43118eb8446bc16d1f8f829ecd6165a4ad87ff715033a0d16ea8898c11705c06564012fb1e0bf4599989e65d203158e519b17fbff2df2ccc3455bbf29bdce8cae5b9399822243416",
        "openwall12345",
    ),
    (
        128,
        512,
        "e59f8b6db2de8cb2db44ffc96473a9296929d9d17817ac8456a26bcee7e99af1131a117f2c297e59cba29e00e22404ce2db9991fb12437ac54af7c0050194a72",
        "e02367a7fed99c219d516a072a29db7c3712f3bef7d5c6b6308d76b837a041f99f7742fef97502b73e30ba78ea8eaf0c2b16dc506e96c1e5523209f4ca9184d2dae4a31934d43c4160004e9c1fffda5c829befcf1f359ed416237262894d3a7269a0a6d67ffaee96e784c644c66005415b74c7ecbb98df3ec3e0773b3f452b612f13ce94712ffe04c02980c2e9ec55731d818f9b89c4e0da85114be8a5ef6461b481d87d09048e2f7189ffb751c0b5144f6e876a462860de6142e1bd6e6c1dfdadafbed1301962bcbb62f486f7947b1dbf8d87ef1af80928da395ccb815bc2183414bcaa2528c0b2436e4317bdb377b3b84163c3584b0c51bbcd6909c9e46096bd7e387fd0174bae07459d096b9c20ebc0b304013b42e7f8953b625c815db62957cb01474da9a8d341e4b344cf08e3b757f416a50431ab45136044cf7afe855e9ac1a95e5223dc01f86cb51177cb713a971479a766de0b75e43ee3d5f43ca61c31b4cb8c2689858f70e7a20c2ace2069ba4e59313f974bffde54562610b1f0bd",
        "\u{2660}",
    ),
    (
        256,
        100,
        "0692854a6e44682591486f6843c3c587734e7a753a8f945a6a252f981327dd7bd54e435d47f73deeeb037248d1ddca6ecbd7eb2d878e672a24e6467f94833398",
        "3934fc99effb89e1f1d5458b40d3388b5aa68408222ed8266b3605b224f23fc0c47bc2d4adbb40df4ed621fcfe5fb6259e574bf5de938755d2503c77c95191737726f5e8df2063b54af36f80b532dcc99670aced998616fcf1d41b2cbca238eb044f82f568b9ff1244b9993b318aacbf7100f6ebc2f60a34bd899bc6458fa164c160815eca141731d8375a4aab327c135cba306f4f714550c591b0dfcdd588687277edd9b1d42deb90493d6c65223c82839319fb3482e763728d9ab4a48f6190fbe4e1d18bb99ee58d5f20590662ea4d8ea43ea9dfde22894722ba6f04ce41812d826d2d40a6b2c0f41ee44900b30e5e4e12bbe9dbe8987b0d3ff064af5a7722c21d4328114b250f22e278c2a402865a1fcb8ceead5fa0512dfc42ead1ce92029eafbce80926541ab605da644f25df19adf9907c95e32427ebd1d3746c6719cabbc994fa91ad8a7023630d2c2ec043dcfe3e209dbfddbdf4c55760ea01953677088e956182dc672ead45a9225ec27bbb8f189a2f900e7caa3a9cd5f805f262bd",
        "Trounce1",
    ),
];

fn metadata(keylen: u16, iterations: i32) -> Metadata {
    Metadata {
        version: 7,
        flags: Flags::default(),
        ealgo: Cipher::AesXts.number(),
        keylen,
        aalgo: 0,
        provsize: 1 << 20,
        sectorsize: 512,
        keys: 0,
        iterations,
        salt: [7; 64],
        mkeys: [[0; SLOT_BYTES]; SLOTS],
    }
}

fn passphrase(text: &str) -> Components {
    Components {
        keyfiles: Vec::new(),
        passphrase: Some(text.as_bytes().to_vec()),
    }
}

#[test]
fn opens_what_freebsd_made() {
    for (keylen, iterations, salt, slots, text) in REAL {
        let mut real = metadata(*keylen, *iterations);
        real.keys = 1;
        real.salt = hex(salt);
        let slots: [u8; SLOTS * SLOT_BYTES] = hex(slots);
        real.mkeys.as_flattened_mut().copy_from_slice(&slots);
        let user = passphrase(text).user_key(&real.salt, *iterations).unwrap();
        let (master, slot) = real.unlock(&user, None).unwrap();
        assert_eq!(slot, 0);
        // Encrypting again with the same key gives the same bytes.
        let mut again = real.clone();
        again.mkeys[0] = [0; SLOT_BYTES];
        again.lock(0, &master, &user).unwrap();
        assert_eq!(again, real);
        let wrong = passphrase("wrong")
            .user_key(&real.salt, *iterations)
            .unwrap();
        assert_eq!(
            real.unlock(&wrong, None).unwrap_err().kind(),
            ErrorKind::Permission
        );
    }
}

/// RFC 4231, case 1.
#[test]
fn hmac_is_that_of_the_rfc() {
    let expected: [u8; 64] = hex(
        "87aa7cdea5ef619d4ff0b4241a1d6cb02379f4e2ce4ec2787ad0b30545e17cde\
         daa833b7d6b8a702038b274eaea3f4e4be9d914eeb61f1702e696c203a126854",
    );
    assert_eq!(hmac(&[0x0b; 20], &[b"Hi ", b"There"]), expected);
}

/// The inputs of RFC 6070 with SHA-512, as widely published.
#[test]
fn pbkdf2_is_the_known_one() {
    for (rounds, expected) in [
        (
            1,
            "867f70cf1ade02cff3752599a3a53dc4af34c7a669815ae5d513554e1c8cf252\
             c02d470a285a0501bad999bfe943c08f050235d7d68b1da55e63f73b60a57fce",
        ),
        (
            4096,
            "d197b1b33db0143e018b12f3d1d1479e6cdebdcc97c5c0f87f6902e072f457b5\
             143f30602641b3d55cd335988cb36b84376060ecd532e039b742a239434af2d5",
        ),
    ] {
        let mut derived = [0; 64];
        pbkdf2::pbkdf2_hmac::<Sha512>(b"password", b"salt", rounds, &mut derived);
        assert_eq!(derived, hex(expected));
    }
}

#[test]
fn every_component_counts() {
    let salt = [1; 64];
    let keyfiles = |files: &[&[u8]], passphrase: Option<&[u8]>| Components {
        keyfiles: files.iter().map(|f| f.to_vec()).collect(),
        passphrase: passphrase.map(<[u8]>::to_vec),
    };
    let key = |c: &Components, iterations| c.user_key(&salt, iterations).unwrap().0;
    let keys = [
        key(&keyfiles(&[b"a"], None), -1),
        key(&keyfiles(&[b"b"], None), -1),
        key(&keyfiles(&[b"a"], Some(b"p")), 3),
        key(&keyfiles(&[b"a"], Some(b"p")), 0),
        key(&keyfiles(&[b"a"], Some(b"q")), 3),
        key(&keyfiles(&[], Some(b"p")), 3),
    ];
    for (n, one) in keys.iter().enumerate() {
        assert!(keys[..n].iter().all(|other| other != one), "key {n}");
    }
    // Key files are simply concatenated.
    assert!(key(&keyfiles(&[b"a", b"b"], None), -1) == key(&keyfiles(&[b"ab"], None), -1));
    assert!(keyfiles(&[], None).user_key(&salt, 3).is_err());
    let error = keyfiles(&[], Some(b"p")).user_key(&salt, -1).err().unwrap();
    assert_eq!(error.to_string(), "Missing -p flag.");
    let long = vec![b'x'; PASSPHRASE_BYTES_MAX + 1];
    assert!(keyfiles(&[], Some(&long)).check().is_err());
}

#[test]
fn two_slots_open_the_same_master_key() {
    for (ealgo, keylen) in [
        (Cipher::AesXts, 256),
        (Cipher::AesCbc, 192),
        (Cipher::Null, 512),
    ] {
        let mut both = metadata(keylen, 10);
        both.ealgo = ealgo.number();
        let master = MasterKey::random();
        let users = ["one", "two"].map(|p| passphrase(p).user_key(&both.salt, 10).unwrap());
        both.lock(0, &master, &users[0]).unwrap();
        both.lock(1, &master, &users[1]).unwrap();
        assert_eq!(both.unlock(&users[1], None).unwrap(), (master.clone(), 1));
        assert_eq!(
            both.unlock(&users[0], Some(0)).unwrap(),
            (master.clone(), 0)
        );
        assert!(both.unlock(&users[0], Some(1)).is_err());
        both.delete_slot(0, false).unwrap();
        assert!(both.unlock(&users[0], None).is_err());
        assert_eq!(both.unlock(&users[1], None).unwrap(), (master.clone(), 1));
        let error = both.delete_slot(1, false).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("This is the last Master Key.")
        );
        assert!(both.delete_slot(0, false).is_err());
        assert!(both.delete_slot(2, true).is_err());
        both.delete_slot(1, true).unwrap();
        assert_eq!(both.keys, 0);
    }
}

#[test]
fn keys_of_sectors_come_from_where_the_version_says() {
    let mut bytes = [0; MASTER_KEY_BYTES];
    for (n, byte) in bytes.iter_mut().enumerate() {
        *byte = n as u8;
    }
    let master = MasterKey(bytes);
    let (iv_key, data_key) = bytes.split_at(64);
    let number = 5u64.to_le_bytes();
    let key = |version, auth| SectorKeys::new(&master, version, auth).key(5);
    assert_eq!(key(7, false), hmac(data_key, &[b"ekey", &number]));
    assert_eq!(key(6, false), hmac(iv_key, &[b"ekey", &number]));
    assert_eq!(key(5, true), hmac(iv_key, &[b"ekey", &number]));
    assert_eq!(key(4, false)[..], *data_key);
    assert_eq!(key(4, true), hmac(data_key, &[b"\x10"]));
    assert_eq!(
        key(7, true),
        hmac(&hmac(data_key, &[b"\x10"]), &[b"ekey", &number])
    );
}

#[test]
fn sim_iterations_are_a_fixed_number() {
    assert_eq!(rt::simulate(1, calibrate_iterations), ITERATIONS_SIMULATED);
}
