//! A large object from mirrors that do everything wrong, on loopback. Time-outs are tiny; no test asserts a time.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

#[allow(dead_code, reason = "shared with other tests, which use the rest")]
mod server;
mod shelf;

use std::path::Path;
use std::time::Duration;

use fetch::{FetchError, Network, Patience, Reason, Slowest};
use host::disk::Disk as _;
use host::fake::FakeDisk;
use server::{Authority, Server, answer, hold, redirect};
use shelf::{Ask, Asked, Memory, OBJECT_SIZE, Shelf, Trick, object};

fn from(servers: &[&Server]) -> Ask {
    Ask::new(servers.iter().map(|server| server.url("/thing")).collect())
}

#[track_caller]
fn reason_of(asked: &Asked, number: usize) -> Reason {
    let Err(FetchError::Mirrors { mirrors, .. }) = &asked.outcome else { panic!("{:?}", asked.outcome) };
    mirrors[number].reason.clone()
}

#[test]
fn a_good_mirror_gives_every_byte_and_is_named() {
    let shelf = Shelf::start(vec![]);
    let asked = from(&[&shelf.server]).run(Memory::default());
    assert_eq!(asked.outcome.unwrap(), Some(shelf.server.url("/thing")));
    assert_eq!(asked.sink.bytes, object());
    assert_eq!(shelf.sent(), OBJECT_SIZE);
    let progress: Vec<_> = asked.told.iter().filter(|line| line.contains(" of ")).collect();
    assert!(progress.len() > 10 && progress.len() <= 100, "{}", progress.len());
    let (last, size) = (asked.told.last().unwrap(), OBJECT_SIZE.div_ceil(100_000));
    let size = format!("{}.{}", size / 10, size % 10);
    assert!(last.ends_with(&format!("{size} of {size} MB")), "{last}");
}

#[test]
fn what_was_cut_or_reset_or_stalled_is_continued_and_nearly_nothing_is_fetched_twice() {
    for trick in [Trick::CutAt(90), Trick::ResetAt(90), Trick::StallAt(90)] {
        let shelf = Shelf::start(vec![trick]);
        let asked = from(&[&shelf.server]).run(Memory::default());
        assert_eq!(asked.outcome.unwrap(), Some(shelf.server.url("/thing")), "{trick:?}");
        assert_eq!(asked.sink.bytes, object(), "{trick:?}");
        // What lay in buffers when a connection was reset is lost.
        let twice = shelf.sent() - OBJECT_SIZE;
        let is_reset = matches!(trick, Trick::ResetAt(_));
        assert!(is_reset || twice <= OBJECT_SIZE / 100, "{trick:?}: {twice} bytes were sent twice");
        let question = shelf.server.questions()[1].to_lowercase();
        assert!(question.contains("\r\nrange: bytes=") && question.contains("\r\nif-range: \"v1\""), "{question}");
    }
}

#[test]
fn a_later_run_goes_on_where_an_earlier_one_was_killed() {
    let shelf = Shelf::start(vec![]);
    let kept = object()[..OBJECT_SIZE / 10 * 9].to_vec();
    let asked = from(&[&shelf.server]).run(Memory { bytes: kept, ..Memory::default() });
    assert_eq!(asked.outcome.unwrap(), None, "the beginning is of an earlier run");
    assert_eq!(asked.sink.bytes, object());
    assert_eq!(shelf.sent(), OBJECT_SIZE / 10);
    assert!(!shelf.server.questions()[0].to_lowercase().contains("if-range"), "no tag is known in this run");
}

#[test]
fn what_is_there_already_is_not_asked_for() {
    let shelf = Shelf::start(vec![]);
    let asked = from(&[&shelf.server]).run(Memory { bytes: object(), ..Memory::default() });
    assert_eq!(asked.outcome.unwrap(), None);
    assert!(shelf.server.questions().is_empty());
    let asked = from(&[&shelf.server]).run(Memory { bytes: [object(), vec![0]].concat(), ..Memory::default() });
    assert_eq!(asked.sink.bytes, object(), "what is too long is fetched anew");
    assert!(asked.told[0].contains("from its beginning"), "{:?}", asked.told);
}

#[test]
fn the_next_mirror_goes_on_where_the_last_one_ended() {
    let (bad, good) = (Shelf::start(vec![Trick::CutAt(50); 9]), Shelf::start(vec![]));
    let asked = from(&[&bad.server, &good.server]).run(Memory::default());
    assert_eq!(asked.outcome.unwrap(), None, "both gave some of it");
    assert_eq!(asked.sink.bytes, object());
    assert_eq!((bad.sent(), good.sent()), (OBJECT_SIZE / 2, OBJECT_SIZE / 2));
}

#[test]
fn a_trickle_is_left_for_the_next_mirror_and_comes_last_from_then_on() {
    let (slow, cut) = (Shelf::start(vec![Trick::Trickle; 9]), Shelf::start(vec![Trick::CutAt(50)]));
    let ask = Ask {
        slowest: Slowest { bytes: 4096, within: Duration::from_millis(500) },
        ..from(&[&slow.server, &cut.server])
    };
    let asked = ask.run(Memory::default());
    assert!(asked.outcome.is_ok(), "{:?}", asked.outcome);
    assert_eq!(asked.sink.bytes, object());
    assert!(asked.told.iter().any(|line| line.contains("too slow: ")), "{:?}", asked.told);
    assert_eq!(slow.server.questions().len(), 1, "whoever was slow is not asked again while others answer");
}

#[test]
fn a_mirror_that_answers_a_range_with_the_whole_is_taken_from_the_beginning() {
    let shelf = Shelf::start(vec![Trick::CutAt(50), Trick::Whole]);
    let asked = from(&[&shelf.server]).run(Memory::default());
    assert_eq!(asked.outcome.unwrap(), Some(shelf.server.url("/thing")));
    assert_eq!((asked.sink.bytes == object(), asked.sink.discards), (true, 1));
}

#[test]
fn a_mirror_that_has_nothing_so_far_behind_is_asked_from_the_beginning() {
    let shelf = Shelf::start(vec![Trick::CutAt(50), Trick::Unsatisfiable]);
    let asked = from(&[&shelf.server]).run(Memory::default());
    assert_eq!(asked.outcome.unwrap(), Some(shelf.server.url("/thing")));
    assert_eq!((asked.sink.bytes == object(), asked.sink.discards), (true, 1));
    assert_eq!(shelf.server.questions().len(), 3);
}

#[test]
fn a_part_that_is_not_the_one_asked_for_is_never_taken() {
    let wrong = Shelf::start(vec![Trick::WrongRange; 9]);
    let right = Shelf::start(vec![]);
    let kept = || Memory { bytes: object()[..1000].to_vec(), ..Memory::default() };
    let asked = from(&[&wrong.server, &right.server]).run(kept());
    assert_eq!((asked.sink.bytes == object(), asked.sink.discards), (true, 0));
    assert!(asked.told.iter().any(|line| line.contains("it was asked for \"bytes 1000-")), "{:?}", asked.told);
    // If nobody else is left, the object is fetched from its beginning, for which no range is needed.
    let asked = from(&[&wrong.server]).run(kept());
    assert_eq!(asked.outcome.unwrap(), Some(wrong.server.url("/thing")));
    assert_eq!((asked.sink.bytes == object(), asked.sink.discards), (true, 1));
}

#[test]
fn no_byte_more_than_promised_is_taken() {
    let endless = Server::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'x'; 4096]).is_ok() {}
    });
    let asked = from(&[&endless]).run(Memory::default());
    assert_eq!(reason_of(&asked, 0), Reason::TooLarge { limit: OBJECT_SIZE });
    assert!(asked.sink.bytes.is_empty() && asked.sink.most <= OBJECT_SIZE);
    for length in ["10000000000", "12"] {
        let declared = Server::start(move |_, stream| {
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nxxxxxxxxxxxx");
            hold(stream);
        });
        let asked = from(&[&declared]).run(Memory::default());
        let Reason::Mismatch(problem) = reason_of(&asked, 0) else { panic!("{:?}", asked.outcome) };
        assert!(problem.contains(length), "{problem}");
        assert_eq!(asked.sink.most, 0, "the body is not even read");
    }
}

#[test]
fn a_mirror_that_gives_everything_and_never_ends_has_given_everything() {
    for ending in ["hold", "reset"] {
        let server = Server::start(move |_, stream| {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            let _ = stream.write_all(&object());
            if ending == "hold" {
                hold(stream);
            } else {
                // Not before all was taken: a reset throws away what is still on its way.
                std::thread::sleep(Duration::from_millis(300));
                stream.reset();
            }
        });
        let asked = from(&[&server]).run(Memory::default());
        assert_eq!(asked.outcome.unwrap(), Some(server.url("/thing")), "{ending}");
        assert_eq!((asked.sink.bytes == object(), asked.sink.discards), (true, 0), "{ending}");
    }
}

#[test]
fn an_object_that_ends_early_by_its_own_word_is_another_one() {
    let short = Server::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    });
    let asked = from(&[&short]).run(Memory::default());
    assert!(matches!(reason_of(&asked, 0), Reason::Mismatch(why) if why.contains("3 of")));
    assert_eq!(short.questions().len(), 1);
}

#[test]
fn a_body_that_is_packed_though_nobody_asked_for_it_is_refused() {
    let packing = Server::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b");
        hold(stream);
    });
    let asked = from(&[&packing]).run(Memory::default());
    assert_eq!(reason_of(&asked, 0), Reason::Encoded("gzip".to_owned()));
    assert!(asked.outcome.unwrap_err().to_string().contains("turn compression off"));
    assert!(packing.questions()[0].to_lowercase().contains("accept-encoding: identity"));
}

#[test]
fn whoever_is_overloaded_is_left_alone_for_as_long_as_it_asks() {
    for status in ["429 Too Many Requests", "503 Service Unavailable"] {
        let shelf = Shelf::start(vec![Trick::RetryAfter(status, 1)]);
        let asked = from(&[&shelf.server]).run(Memory::default());
        assert!(asked.outcome.is_ok(), "{:?}", asked.outcome);
        let rest = asked.told.iter().find_map(|line| line.split_once("again in ")?.1.strip_suffix(" ms")).unwrap();
        assert!(rest.parse::<u64>().unwrap() > 500, "the usual rests are a few milliseconds: {rest}");
    }
    // One that asks for an hour is looked at again sooner, but not within the time of this run; another is asked at once.
    let (busy, good) =
        (Shelf::start(vec![Trick::RetryAfter("503 Service Unavailable", 3600); 9]), Shelf::start(vec![]));
    let asked = from(&[&busy.server, &good.server]).run(Memory::default());
    assert!(asked.outcome.is_ok());
    let asked = from(&[&busy.server]).run(Memory::default());
    assert!(matches!(reason_of(&asked, 0), Reason::Status { code: 503, .. }), "{:?}", asked.outcome);
    assert_eq!(busy.server.questions().len(), 2);
}

#[test]
fn a_mirror_with_the_wrong_bytes_is_left_out_even_if_it_gave_only_the_beginning() {
    let wrong = || Shelf::start(vec![Trick::WrongBytes; 9]);
    let right = || Shelf::start(vec![]);
    let half_wrong = || Shelf::start(vec![Trick::WrongBytesCutAt(50); 9]);
    let half_right = || Shelf::start(vec![Trick::CutAt(50)]);
    for (case, shelves) in [
        ("all of it", [wrong(), right()]),
        ("the beginning", [half_wrong(), right()]),
        ("the end", [half_right(), wrong()]),
        ("the end, to which a right one was left out", [right(), wrong()]),
    ] {
        let ask = from(&[&shelves[0].server, &shelves[1].server]);
        let (sink, tries) = ask.run_until_right();
        assert_eq!(sink.bytes, object(), "{case}");
        assert!(tries <= 4, "{case}: {tries}");
    }
    // If nobody has the right ones, it ends.
    let (one, other) = (wrong(), half_wrong());
    let ask = Ask { patience: shelf::hasty(), ..from(&[&one.server, &other.server]) };
    let (sink, _) = ask.run_until_right();
    assert_ne!(sink.bytes, object());
}

#[test]
fn wrong_certificates_and_redirects_to_metadata_are_refused() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = authority.serve(|_, stream| answer(stream, "200 OK", ""));
    let asked = Ask { authorities: Some(other.pem()), ..from(&[&server]) }.run(Memory::default());
    assert!(matches!(reason_of(&asked, 0), Reason::Certificate { .. }), "{:?}", asked.outcome);
    assert!(server.questions().is_empty());
    let leading = Server::start(|_, stream| redirect(stream, "http://169.254.169.254/latest/user-data"));
    let asked = from(&[&leading]).run(Memory::default());
    assert!(matches!(reason_of(&asked, 0), Reason::Redirect(why) if why.contains("link-local")));
}

#[test]
fn a_status_that_will_not_change_is_final_for_its_mirror_only() {
    let (absent, good) = (Server::start(|_, stream| answer(stream, "404 Not Found", "")), Shelf::start(vec![]));
    let asked = from(&[&absent, &good.server]).run(Memory::default());
    assert!(asked.outcome.is_ok());
    let asked = from(&[&absent]).run(Memory::default());
    assert!(matches!(reason_of(&asked, 0), Reason::Status { code: 404, .. }));
    assert_eq!(absent.questions().len(), 2);
    let nobody = Ask { without: vec![absent.url("/thing")], ..from(&[&absent]) }.run(Memory::default());
    assert!(matches!(nobody.outcome, Err(FetchError::NoMirror { .. })));
}

#[test]
fn a_sink_that_takes_nothing_more_ends_it_at_once() {
    let (first, second) = (Shelf::start(vec![]), Shelf::start(vec![]));
    let full = Memory { room: Some(1000), ..Memory::default() };
    let asked = from(&[&first.server, &second.server]).run(full);
    let Err(FetchError::Sink { source, .. }) = &asked.outcome else { panic!("{:?}", asked.outcome) };
    assert!(std::error::Error::source(source).unwrap().to_string().contains("no space"), "{source:?}");
    assert!(second.server.questions().is_empty());
}

#[test]
fn a_local_file_is_a_mirror_too() {
    let disk = FakeDisk::new();
    disk.make_folder(Path::new("/srv"), 0o755).unwrap();
    disk.create(Path::new("/srv/thing"), 0o644, &object()).unwrap();
    disk.create(Path::new("/srv/short"), 0o644, b"x").unwrap();
    let ask = |path: &str| Ask::new(vec![format!("file://{path}")]);
    let kept = Memory { bytes: object()[..1000].to_vec(), ..Memory::default() };
    let asked = ask("/srv/thing").run_with(kept, |network| Network { disk: Some(&disk), ..network });
    assert_eq!((asked.sink.bytes == object(), asked.sink.discards), (true, 0));
    let asked = ask("/srv/short").run_with(Memory::default(), |network| Network { disk: Some(&disk), ..network });
    assert!(matches!(reason_of(&asked, 0), Reason::Mismatch(_)));
    let asked = ask("/srv/none").run_with(Memory::default(), |network| Network { disk: Some(&disk), ..network });
    assert!(asked.outcome.unwrap_err().to_string().contains("no such file"));
    assert!(matches!(reason_of(&ask("/srv/thing").run(Memory::default()), 0), Reason::Url(_)));
}

#[test]
fn the_time_for_everything_ends_it_and_what_came_is_kept() {
    let stuck = Shelf::start(vec![Trick::StallAt(50), Trick::StallAt(50), Trick::StallAt(50), Trick::StallAt(50)]);
    let patience = Patience { overall: Duration::from_millis(1000), ..shelf::patience() };
    let asked = Ask { patience, ..from(&[&stuck.server]) }.run(Memory::default());
    let error = asked.outcome.unwrap_err();
    assert!(error.may_pass() && error.to_string().contains("within 1s"), "{error}");
    assert!(asked.sink.bytes.len() >= OBJECT_SIZE / 2, "the next run goes on there");
}
